"""`hrag ingest` counts the outcome of every document and shows its progress."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from hrag.cli.ingest_files import EMPTY, OLD_FORMAT, UNKNOWN_FORMAT, SkippedFile
from hrag.cli.ingest_progress import (
    IngestProgress,
    ingest_all,
    print_outcome,
    show_reports,
    show_skipped,
    shown_progress,
    skipped_summary,
)
from hrag.cli.input_documents import InputDocument, Unreadable
from hrag.errors import (
    BlankDocument,
    CollectionNotFound,
    InvalidArgument,
    ServiceUnavailable,
    TooLarge,
    UnreadableDocument,
)
from hrag.types import Document, IngestOutcome, IngestResult, ReadReport
from tests.support.until import until


class FakeClient:
    """A client that stores all documents except blank ones.

    The stream fails after `breaks_after` answers, if that is not None.
    """

    def __init__(self, breaks_after: int | None = None) -> None:
        self.breaks_after = breaks_after

    def ingest_many(self, tenant_id, documents, *, collection, validate_only) -> Iterator[object]:
        for number, document in enumerate(documents):
            if number == self.breaks_after:
                raise ServiceUnavailable("gone")
            if not document.body:
                yield BlankDocument("body is blank")
            else:
                yield IngestResult(document.document_id, IngestOutcome.CREATED, 1, (3, 1), 10)


def _document(name: str, body: str = "text") -> InputDocument:
    return InputDocument(name, lambda: Document(body, name), 100)


def _unreadable(name: str) -> InputDocument:
    def read() -> Document:
        raise Unreadable("locked")

    return InputDocument(name, read, 10)


def _ingested(client, documents, on_outcome=lambda _: None) -> IngestProgress:
    progress = IngestProgress(len(documents), 310, on_outcome)
    ingest_all(client, "t", "default", documents, progress)
    return progress


def test_each_failure_is_reported_with_its_file():
    documents = [_document("a"), _unreadable("b"), _document("c", ""), _document("d")]
    progress = _ingested(FakeClient(), documents)
    assert sorted(progress.failures) == [("b", "locked"), ("c", "body is blank")]
    assert progress.document_ids == ["a", "d"]
    assert (progress.tokens, progress.chunks_per_level, progress.completed) == (20, (6, 2), 4)
    assert progress.error is None
    assert progress.completed_bytes == 310
    assert [label for label, _ in progress.reported] == ["a", "d"]
    assert progress.next_label == ""


def test_every_outcome_is_reported_with_its_label():
    outcomes = []
    documents = [_document("a"), _unreadable("b"), _document("c", "")]
    _ingested(FakeClient(), documents, outcomes.append)
    reported = [(outcome.label, type(outcome.result).__name__) for outcome in outcomes]
    assert sorted(reported) == [
        ("a", "IngestResult"),
        ("b", "Unreadable"),
        ("c", "BlankDocument"),
    ]


def test_the_answers_before_a_broken_stream_are_kept():
    documents = [_document(name) for name in "abcd"]
    progress = _ingested(FakeClient(breaks_after=2), documents)
    assert progress.document_ids == ["a", "b"]
    assert str(progress.error) == "gone"


def test_a_collection_that_does_not_exist_ends_the_stream():
    class Missing(FakeClient):
        def ingest_many(
            self, tenant_id, documents, *, collection, validate_only
        ) -> Iterator[object]:
            for _ in documents:
                yield CollectionNotFound("no such one")

    progress = _ingested(Missing(), [_document("a"), _document("b")])
    assert (progress.completed, str(progress.error)) == (0, "no such one")


def test_a_document_larger_than_a_grpc_message_does_not_affect_other_documents():
    """A document above 32 MiB is sent in a separate stream. Here only its stated size is large."""

    class Refusing(FakeClient):
        def ingest_many(
            self, tenant_id, documents, *, collection, validate_only
        ) -> Iterator[object]:
            for document in documents:
                if len(document.body) > 4:
                    raise TooLarge("SERVER: Received message larger than max")
                yield IngestResult(document.document_id, IngestOutcome.CREATED, 1, (1,), 1)

    size_bytes = 32 * 1024 * 1024 + 1
    large = [InputDocument(name, _document(name, "large").read, size_bytes) for name in ("b", "c")]
    progress = _ingested(Refusing(), [_document("a"), *large, _document("d")])
    assert (progress.document_ids, progress.error) == (["a", "d"], None)
    assert [label for label, _ in progress.failures] == ["b", "c"]
    progress = _ingested(Refusing(), [_document("a"), _document("b", "large"), _document("d")])
    assert isinstance(progress.error, TooLarge)


def test_an_outcome_is_counted_before_it_is_reported():
    counts = []
    documents = [_document("a"), _document("b", ""), _unreadable("c")]
    progress = IngestProgress(on_outcome=lambda _: counts.append(progress.completed))
    ingest_all(FakeClient(), "t", "default", documents, progress)
    assert counts == [1, 2, 3]


def test_files_are_read_only_when_they_are_sent():
    read = []

    def recorded(name: str) -> InputDocument:
        return InputDocument(name, lambda: read.append(name) or Document("x", name))

    counts = []
    documents = [recorded(name) for name in "abc"]
    _ingested(FakeClient(), documents, lambda _: counts.append(len(read)))
    assert counts == [1, 2, 3]


def test_the_clock_stops_at_the_end():
    progress = _ingested(FakeClient(), [_document("a")])
    assert progress.seconds == progress.seconds
    assert progress.rate(10) == 10 / progress.seconds


@pytest.mark.parametrize(
    ("names", "summary"),
    [
        ([], ""),
        (["a.bin", "b.dat", "e"], "skipped 3: 2 of unknown format (.bin, .dat), 1 empty"),
        (["a.b", "c.b", "d.a", "LICENSE"], "skipped 4: 4 of unknown format (.b, .a, no extension)"),
        (
            [f"x.{extension}" for extension in "abcdefgh"],
            "skipped 8: 8 of unknown format (.a, .b, .c, .d, .e and 3 more)",
        ),
    ],
)
def test_skipped_files_are_counted_by_reason(names, summary):
    skipped = [SkippedFile(Path(name), EMPTY if name == "e" else UNKNOWN_FORMAT) for name in names]
    assert skipped_summary(skipped) == summary


def test_skipped_files_are_shown_with_examples_of_each_kind(capsys):
    names = ["a/1.bin", "b/2.bin", "3.bin", "4.bin", "5.dat", "LICENSE", "e"]
    skipped = [SkippedFile(Path(name), EMPTY if name == "e" else UNKNOWN_FORMAT) for name in names]
    show_skipped(skipped)
    _, *kinds = capsys.readouterr().out.splitlines()
    assert kinds == [
        "  4 .bin: a/1.bin, b/2.bin, 3.bin, …",
        "  1 .dat: 5.dat",
        "  1 empty: e",
        "  1 without extension: LICENSE",
    ]
    show_skipped(skipped, is_verbose=True)
    _, *files = capsys.readouterr().out.splitlines()
    assert len(files) == len(names)
    assert files[0] == "  a/1.bin: of unknown format"
    show_skipped([SkippedFile(Path(f"a.{number}"), UNKNOWN_FORMAT) for number in range(30)])
    assert "and 20 more kinds; --verbose lists all files" in capsys.readouterr().out
    for name, target in (("a.doc", "docx"), ("a.PPT", "pptx")):
        show_skipped([SkippedFile(Path(name), OLD_FORMAT)])
        advice = f"{name}; to convert: libreoffice --headless --convert-to {target} FILE\n"
        assert advice in capsys.readouterr().out
    show_skipped([SkippedFile(Path("a.png"), "without text", "install it")])
    assert "  1 without text: a.png; install it\n" in capsys.readouterr().out
    show_skipped([])
    assert capsys.readouterr().out == ""


def _progress_of(*reports: ReadReport | None, keeps_all: bool = False) -> IngestProgress:
    progress = IngestProgress(keeps_all=keeps_all)
    for number, report in enumerate(reports):
        progress.send(f"{number}.txt", 1)
        outcome = IngestOutcome.CREATED if report else IngestOutcome.UNCHANGED
        progress.receive(IngestResult(f"{number}", outcome, 1, (1,), 1, report))
    return progress


def test_reports_of_few_documents_are_shown_and_of_many_the_notable_ones(capsys):
    plain, guessed = ReadReport("utf-8"), ReadReport("windows-1252", is_encoding_guessed=True)
    show_reports(_progress_of(plain, None, guessed))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["0.txt", "2.txt"]
    many = (*[plain] * 30, None, guessed)
    show_reports(_progress_of(*many))
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("31.txt: ")
    assert "the encoding is a guess (--encoding sets it)" in line
    show_reports(_progress_of(*many, keeps_all=True), is_verbose=True)
    assert len(capsys.readouterr().out.splitlines()) == 32


def test_pictures_in_folders_without_text_are_skipped_and_named_ones_fail():
    progress = IngestProgress(on_outcome=print_outcome)
    blank = BlankDocument("content is a picture without readable text", field="content")
    for label, is_in_folder in (("a.png", True), ("b.png", True), ("c.png", False)):
        progress.send(label, 1, may_be_skipped=is_in_folder)
    progress.receive(blank)
    progress.receive(InvalidArgument("its text must be recognised; install it", field="mime_type"))
    progress.receive(blank)
    for error in (
        UnreadableDocument("content is damaged", field="content"),
        UnreadableDocument("content is a text", field="mime_type"),
    ):
        progress.send("d.png", 1, may_be_skipped=True)
        progress.receive(error)
    assert [(str(file.path), file.advice) for file in progress.skipped] == [
        ("a.png", ""),
        ("b.png", "install it"),
    ]
    assert [label for label, _ in progress.failures] == ["c.png", "d.png", "d.png"]
    assert progress.completed == 5
    assert skipped_summary(progress.skipped) == (
        "skipped 2: 1 picture in which no text was found, 1 picture whose text was not recognised"
    )


def test_an_error_names_the_option_that_sets_the_field():
    progress = IngestProgress()
    progress.send("a", 1)
    progress.receive(UnreadableDocument("content is not utf-8", field="encoding"))
    progress.send("b", 1)
    progress.receive(UnreadableDocument("content is a ZIP archive", field="content"))
    progress.send("c", 1)
    progress.receive(UnreadableDocument("content is a text", field="mime_type"))
    progress.send("d", 1)
    progress.receive(InvalidArgument("this indexer lacks the libraries", field="mime_type"))
    assert progress.failures == [
        ("a", "content is not utf-8 (--encoding)"),
        ("b", "content is a ZIP archive"),
        ("c", "content is a text (--as)"),
        ("d", "this indexer lacks the libraries"),
    ]


def test_a_pipe_gets_plain_lines_of_progress(capsys):
    progress = IngestProgress(3, 8_000_000)
    progress.send("docs/手册.pdf\x1b[2J", 48_000_000)
    with shown_progress(progress, Console(file=io.StringIO()), interval_s=0.001):
        shown = ""

        def has_line() -> bool:
            nonlocal shown
            shown += capsys.readouterr().err
            return "\n" in shown

        until(has_line)
    line = shown.splitlines()[0]
    assert line.startswith("0 of 3 documents, 0 bytes of 8.0 MB, 0 tokens, now at docs/手册.pdf")
    assert line.endswith(" s")
    assert "\x1b" not in shown
    assert "\r" not in shown


def test_a_terminal_gets_a_bar_that_moves_with_each_outcome():
    progress = IngestProgress(2)
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
    with shown_progress(progress, terminal):
        progress.fail("a", Unreadable("locked"))
    shown = terminal.file.getvalue()
    assert "1 of 2 documents, 0 tokens" in shown
    # The first half of the bar ends here, because the second half has another colour.
    assert "━━━━━━\x1b[0m" in shown
