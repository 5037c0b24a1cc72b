"""The pipeline checks, divides, embeds and commits documents. The store is real."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from hrag import errors
from hrag.engine import IngestDecision
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.filters import Match
from hrag.models.embedding import Vectors
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import (
    PDF,
    Document,
    IngestOutcome,
    IngestResult,
    Page,
    ReadReport,
    SettingsRequest,
    TreeSettings,
)
from hrag.values.deadline import NEVER, Deadline
from hrag.values.filters import METADATA
from hrag.values.quotas import Quota
from indexer_svc import ingest_pipeline as pipeline_module
from indexer_svc.ingest_pipeline import Defaults, Pipeline
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.text_recognition import TextRecognition
from tests.conftest import Engine
from tests.support.documents.fakes import search_leaves

TREE = TreeSettings((32, 64, 128), 0.1)
TEXT = "The cat sat on the mat. " * 40
MAX_BYTES = 100_000


class CountingEmbedder(HashEmbedder):
    """An embedder that records the texts that it embeds. Raises `failure` if it is set."""

    def __init__(self, dimension: int = 16, name: str = "", max_tokens: int = 1000) -> None:
        super().__init__(dimension)
        self.name = name or self.name
        self.max_tokens = max_tokens
        self.embedded_texts: list[str] = []
        self.failure: errors.HragError | None = None

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        if self.failure is not None:
            raise self.failure
        self.embedded_texts += texts
        return super().embed(texts, deadline)


class UnreachableEmbedder(CountingEmbedder):
    """An embedder that cannot be reached, so not even its dimension is known."""

    def __init__(self) -> None:
        self.name = "openai/far-away"

    @property
    def dimension(self) -> int:
        raise errors.EmbedderUnavailable("the endpoint is down")


@pytest.fixture
def embedder() -> CountingEmbedder:
    return CountingEmbedder()


@pytest.fixture
def pipeline(engine: Engine, embedder: CountingEmbedder) -> Pipeline:
    return _pipeline(engine, embedder)


def _pipeline(engine: Engine, embedder: Any, tree: TreeSettings = TREE) -> Pipeline:
    return Pipeline(engine.writer, embedder, Defaults(tree, MAX_BYTES))


def _ingest(
    pipeline: Pipeline, document: Document, collection: str = "default", deadline: Deadline = NEVER
) -> IngestResult:
    return pipeline.ingest("t", collection, document, deadline)


# The following tests cover the ingestion of valid documents.


def test_a_document_is_created_then_unchanged_then_updated(pipeline: Pipeline) -> None:
    created = _ingest(pipeline, Document(TEXT, "d"))
    assert created.outcome is IngestOutcome.CREATED
    assert len(created.chunks_per_level) == len(TREE.level_sizes)
    unchanged = _ingest(pipeline, Document(TEXT, "d"))
    assert created.report == ReadReport(mime_type="text/plain")
    assert unchanged == dataclasses.replace(created, outcome=IngestOutcome.UNCHANGED, report=None)
    updated = _ingest(pipeline, Document(TEXT + "More.", "d"))
    assert updated.outcome is IngestOutcome.UPDATED
    assert updated.sequence > created.sequence


def test_fields_of_a_file_become_metadata_that_filters_find(
    engine: Engine, embedder: CountingEmbedder
) -> None:
    def parse(*_: Any) -> ParsedFile:
        return ParsedFile(TEXT, metadata={"from": "ann@x.org", "to": ["bob", "eve"]})

    pipeline = Pipeline(engine.writer, embedder, Defaults(TREE, MAX_BYTES), parse)
    mail = Document(b"%PDF-", "d", mime_type=PDF, metadata={"from": "the client"})
    _ingest(pipeline, mail)
    collection = engine.open(name="default")
    assert engine.writer.document(collection, "d").metadata == {
        "from": "the client",
        "to": ["bob", "eve"],
    }
    eve = Match(f"{METADATA}to", ("eve",))
    assert engine.writer.count(collection, eve).documents == 1
    assert _ingest(pipeline, mail).outcome is IngestOutcome.UNCHANGED


@pytest.fixture
def keeping(engine: Engine, embedder: CountingEmbedder) -> Pipeline:
    """A pipeline whose new collections keep originals."""
    return Pipeline(engine.writer, embedder, Defaults(TREE, MAX_BYTES, keep_originals=True))


def _original_bytes(engine: Engine, collection: str = "default") -> int:
    return engine.writer.document(engine.open(name=collection), "d").original_bytes


def test_the_file_of_a_document_is_kept_if_its_collection_keeps_originals(
    engine: Engine, keeping: Pipeline
) -> None:
    _ingest(keeping, Document(TEXT.encode(), "d"))
    assert _original_bytes(engine) == len(TEXT)
    _ingest(keeping, Document((Page(TEXT),), "d"))
    assert _original_bytes(engine) == 0
    for keeps in (False, True):
        name = f"keeps-{keeps}"
        keeping.create_collection("t", name, SettingsRequest(keep_originals=keeps))
        _ingest(keeping, Document(TEXT.encode(), "d"), name)
        assert _original_bytes(engine, name) == (len(TEXT) if keeps else 0)


def test_a_file_and_its_text_are_not_the_same_document_where_originals_are_kept(
    engine: Engine, keeping: Pipeline, pipeline: Pipeline
) -> None:
    file, text = Document(TEXT.encode(), "d"), Document(TEXT, "d")
    outcomes = [_ingest(keeping, document).outcome for document in (text, file, file, text, text)]
    created, updated, unchanged = (
        IngestOutcome.CREATED,
        IngestOutcome.UPDATED,
        IngestOutcome.UNCHANGED,
    )
    assert outcomes == [created, updated, unchanged, updated, unchanged]
    pipeline.create_collection("t", "plain", SettingsRequest())
    outcomes = [_ingest(pipeline, document, "plain").outcome for document in (text, file, text)]
    assert outcomes == [created, unchanged, unchanged]


def test_an_original_counts_in_quota_before_its_text_is_embedded(
    engine: Engine, embedder: CountingEmbedder
) -> None:
    def parse(*_: Any) -> ParsedFile:
        return ParsedFile(TEXT)

    writer = EmbeddedWriter(engine.store, quota_of=lambda _tenant: Quota(max_bytes=50_000))
    file = Document(b"%PDF-" + bytes(60_000), "d", mime_type=PDF)
    for keeps in (True, False):
        defaults = Defaults(TREE, MAX_BYTES, keep_originals=keeps)
        pipeline = Pipeline(writer, embedder, defaults, parse)
        pipeline.create_collection("t", f"keeps-{keeps}", SettingsRequest())
        if keeps:
            with pytest.raises(errors.StorageQuotaExceeded):
                _ingest(pipeline, file, f"keeps-{keeps}")
            assert not embedder.embedded_texts
        else:
            assert _ingest(pipeline, file, f"keeps-{keeps}").outcome is IngestOutcome.CREATED


def test_a_pdf_with_unread_pages_is_read_again_once_there_is_text_recognition(
    engine: Engine, embedder: CountingEmbedder
) -> None:
    unread = ReadReport(unread_pages=(2,))

    def parse(*_: Any) -> ParsedFile:
        return ParsedFile(TEXT, report=unread)

    def recognise(*_: Any) -> ParsedFile:
        return ParsedFile(TEXT + "Page 2.", report=ReadReport(recognised_pages=(2,)))

    without = Pipeline(engine.writer, embedder, Defaults(TREE, MAX_BYTES), parse)
    recognition = TextRecognition(recognise, 10)
    recognising = Pipeline(engine.writer, embedder, Defaults(TREE, MAX_BYTES), parse, recognition)
    scan = Document(b"%PDF-", "d", mime_type=PDF)
    outcomes = [
        _ingest(pipeline, scan).outcome
        for pipeline in (without, without, recognising, recognising, without)
    ]
    assert outcomes == [
        IngestOutcome.CREATED,
        IngestOutcome.UNCHANGED,
        IngestOutcome.UPDATED,
        IngestOutcome.UNCHANGED,
        IngestOutcome.UNCHANGED,
    ]


def test_a_document_that_is_only_validated_is_read_and_not_stored(
    pipeline: Pipeline, engine: Engine, embedder: CountingEmbedder
) -> None:
    document = Document(TEXT.encode("utf-16"), "d")
    planned = pipeline.validate("t", "default", document, NEVER)
    assert (planned.outcome, planned.sequence) == (IngestOutcome.CREATED, 0)
    assert planned.report == ReadReport("utf-16-le", mime_type="text/plain")
    assert embedder.embedded_texts == []
    with pytest.raises(errors.CollectionNotFound):
        engine.writer.open("t", "default")
    created = _ingest(pipeline, document)
    assert created == dataclasses.replace(planned, sequence=created.sequence)
    assert pipeline.validate("t", "default", document, NEVER).outcome is IngestOutcome.UNCHANGED
    longer = Document(TEXT + "More.", "d")
    assert pipeline.validate("t", "default", longer, NEVER).outcome is IngestOutcome.UPDATED
    with pytest.raises(errors.BlankDocument):
        pipeline.validate("t", "default", Document(b" "), NEVER)


def test_exactly_the_leaves_are_embedded(
    pipeline: Pipeline, engine: Engine, embedder: CountingEmbedder
) -> None:
    result = _ingest(pipeline, Document("\U0001f600 " + TEXT, "d"))
    assert len(embedder.embedded_texts) == result.chunks_per_level[0]
    _, text, _ = engine.writer.document_with_text(engine.open(name="default"), "d")
    assert embedder.embedded_texts[0].startswith("\U0001f600 The cat")
    assert all(leaf in text for leaf in embedder.embedded_texts)


def test_the_level_that_the_settings_name_is_embedded(
    engine: Engine, embedder: CountingEmbedder
) -> None:
    pipeline = _pipeline(engine, embedder, TreeSettings((32, 64, 128), 0.0, 1))
    result = _ingest(pipeline, Document(TEXT, "d"))
    assert len(embedder.embedded_texts) == result.chunks_per_level[1]


def test_an_unchanged_document_is_neither_extracted_nor_embedded_nor_written(
    pipeline: Pipeline,
    engine: Engine,
    embedder: CountingEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _ingest(pipeline, Document(TEXT, "d", metadata={"a": 1}))
    monkeypatch.setattr(pipeline_module, "extract", None)
    before = (len(embedder.embedded_texts), engine.reader.sequence("t"))
    _ingest(pipeline, Document(TEXT, "d", metadata={"a": 1}))
    assert (len(embedder.embedded_texts), engine.reader.sequence("t")) == before


@pytest.mark.parametrize(
    "change",
    [
        {"title": "t"},
        {"source": "s"},
        {"mime_type": "text/markdown"},
        {"metadata": {"a": 2}},
        {"body": TEXT + "."},
        {"body": (Page(TEXT),)},
    ],
)
def test_any_change_of_a_document_is_an_update(pipeline: Pipeline, change: Any) -> None:
    document = Document(TEXT, "d", metadata={"a": 1})
    _ingest(pipeline, document)
    changed = _ingest(pipeline, dataclasses.replace(document, **change))
    assert changed.outcome is IngestOutcome.UPDATED


@pytest.mark.parametrize(
    "change",
    [
        {"mime_type": "text/plain"},
        {"mime_type": "Text/Plain; charset=utf-8"},
        {"body": TEXT.encode()},
    ],
)
def test_the_same_document_in_another_form_is_unchanged(pipeline: Pipeline, change: Any) -> None:
    document = Document(TEXT, "d")
    _ingest(pipeline, document)
    same = _ingest(pipeline, dataclasses.replace(document, **change))
    assert same.outcome is IngestOutcome.UNCHANGED


def test_a_document_without_an_id_gets_one_from_its_body(pipeline: Pipeline) -> None:
    first = _ingest(pipeline, Document(TEXT, title="One"))
    same_body = _ingest(pipeline, Document(TEXT, title="Two"))
    other = _ingest(pipeline, Document(TEXT + "."))
    assert first.document_id == same_body.document_id != other.document_id
    assert same_body.outcome is IngestOutcome.UPDATED


def test_nothing_of_a_document_is_stored_when_embedding_fails(
    pipeline: Pipeline, engine: Engine, embedder: CountingEmbedder
) -> None:
    _ingest(pipeline, Document(TEXT, "d"))
    before = engine.reader.sequence("t")
    embedder.failure = errors.EmbedderRejected("one vector is missing")
    with pytest.raises(errors.EmbedderRejected):
        _ingest(pipeline, Document("Something else.", "d"))
    assert engine.reader.sequence("t") == before
    assert engine.writer.document_with_text(engine.open(name="default"), "d")[1] == TEXT


def test_a_document_is_not_stored_after_the_deadline(pipeline: Pipeline, engine: Engine) -> None:
    with pytest.raises(errors.DeadlineExceeded, match="extracting"):
        _ingest(pipeline, Document(TEXT, "d"), deadline=Deadline.after(-1))
    with pytest.raises(errors.DocumentNotFound):
        engine.writer.document(engine.open(name="default"), "d")


def test_only_a_changed_document_waits_for_capacity(
    pipeline: Pipeline, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[Any] = []

    def full(*arguments: Any) -> None:
        waits.append(arguments)
        raise errors.DeadlineExceeded("the deadline passed while waiting for capacity")

    _ingest(pipeline, Document(TEXT, "d"))
    monkeypatch.setattr(engine.writer, "wait_for_capacity", full)
    assert _ingest(pipeline, Document(TEXT, "d")).outcome is IngestOutcome.UNCHANGED
    with pytest.raises(errors.DeadlineExceeded, match="capacity"):
        _ingest(pipeline, Document("Something else.", "d"))
    assert waits == [(engine.open(name="default"), NEVER)]
    assert engine.writer.document_with_text(engine.open(name="default"), "d")[1] == TEXT


def _pipeline_with_quota(engine: Engine, embedder: CountingEmbedder, quota: Quota) -> Pipeline:
    writer = EmbeddedWriter(engine.store, quota_of=lambda _tenant: quota)
    return Pipeline(writer, embedder, Defaults(TREE, MAX_BYTES))


def test_a_new_document_beyond_the_quota_is_refused_before_it_is_extracted(
    engine: Engine, embedder: CountingEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = _pipeline_with_quota(engine, embedder, Quota(max_documents=1))
    _ingest(pipeline, Document(TEXT, "a"))
    monkeypatch.setattr(pipeline_module, "extract", None)
    with pytest.raises(errors.StorageQuotaExceeded):
        _ingest(pipeline, Document(TEXT, "b"))
    assert _ingest(pipeline, Document(TEXT, "a")).outcome is IngestOutcome.UNCHANGED


def test_a_document_that_is_too_large_for_the_quota_is_not_embedded(
    engine: Engine, embedder: CountingEmbedder
) -> None:
    pipeline = _pipeline_with_quota(engine, embedder, Quota(max_bytes=len(TEXT)))
    with pytest.raises(errors.StorageQuotaExceeded):
        _ingest(pipeline, Document(TEXT, "a"))
    assert embedder.embedded_texts == []


def test_the_bytes_that_the_admission_requires_are_at_most_the_bytes_stored(
    engine: Engine, embedder: CountingEmbedder
) -> None:
    """The admission checks the quota with a lower bound of the bytes that a document needs.

    If the bound were too high, a document within the quota would be refused.
    """
    required: list[int] = []

    class RecordingWriter(EmbeddedWriter):
        def admit(
            self,
            tenant_id: str,
            collection: str,
            document_id: str,
            content_hash: str,
            stored_bytes: int = 1,
        ) -> IngestDecision:
            required.append(stored_bytes)
            return super().admit(tenant_id, collection, document_id, content_hash, stored_bytes)

    pipeline = Pipeline(RecordingWriter(engine.store), embedder, Defaults(TREE, MAX_BYTES))
    before = 0
    for document in (Document("x", "a"), Document(TEXT * 10, "b"), Document("猫睡觉。" * 99, "c")):
        _ingest(pipeline, document)
        after = engine.writer.status(engine.open(name="default")).tenant.stored_bytes
        assert 1 < required[-1] <= after - before
        before = after


# The following tests cover invalid documents.


@pytest.mark.parametrize(
    ("document", "error", "field", "words"),
    [
        (Document(TEXT, "a/b"), errors.InvalidArgument, "document_id", "a/b"),
        (Document(TEXT, title="ü" * 513), errors.TooLarge, "title", "1026 bytes; at most 1024"),
        (Document(TEXT, source="s" * 2049), errors.TooLarge, "source", "2049 bytes; at most 2048"),
        (
            Document(TEXT, metadata={"a": "x" * 65_536}),
            errors.TooLarge,
            "metadata",
            "65544 bytes; at most 65536",
        ),
        (
            Document(TEXT, metadata={"a": [0] * 1000, "b": {"c": [{"d": 0}] * 12}}),
            errors.TooLarge,
            "metadata",
            "1,025 values; at most 1,024",
        ),
        (Document(" \n\t"), errors.BlankDocument, "text", "blank"),
        (Document(b"a\0b"), errors.UnreadableDocument, "mime_type", "NUL byte at offset 1"),
        (Document("x " * MAX_BYTES), errors.TooLarge, "text", "200000 bytes"),
        (Document(TEXT, mime_type="image/gif"), errors.InvalidArgument, "mime_type", "image/gif"),
    ],
)
def test_the_error_for_an_invalid_document_names_field_and_value(
    pipeline: Pipeline,
    embedder: CountingEmbedder,
    document: Document,
    error: type[errors.HragError],
    field: str,
    words: str,
) -> None:
    with pytest.raises(error) as caught:
        _ingest(pipeline, document)
    assert type(caught.value) is error
    assert caught.value.field == field
    assert words in caught.value.message
    assert embedder.embedded_texts == []


def test_the_longest_allowed_fields_are_accepted(pipeline: Pipeline) -> None:
    document = Document(
        TEXT, "d" * 128, "t" * 1024, "s" * 2048, metadata={"a": "x" * (65_536 - len('{"a":""}'))}
    )
    assert _ingest(pipeline, document).outcome is IngestOutcome.CREATED
    assert _ingest(pipeline, Document(TEXT, metadata={"a": [*range(1024)]}))


@pytest.mark.parametrize(
    ("tenant_id", "collection", "field"),
    [("", "default", "tenant_id"), ("t/..", "default", "tenant_id"), ("t", "c\0", "collection")],
)
def test_invalid_names_are_refused(
    pipeline: Pipeline, tenant_id: str, collection: str, field: str
) -> None:
    with pytest.raises(errors.InvalidArgument) as caught:
        pipeline.ingest(tenant_id, collection, Document(TEXT), NEVER)
    assert caught.value.field == field


# The following tests cover collections.


def test_ingestion_creates_a_missing_collection_only_if_it_is_the_default_collection(
    pipeline: Pipeline,
) -> None:
    with pytest.raises(errors.CollectionNotFound):
        _ingest(pipeline, Document(TEXT), "books")
    assert _ingest(pipeline, Document(TEXT)).outcome is IngestOutcome.CREATED


def test_an_ingest_uses_the_default_collection_that_another_ingest_has_just_created(
    pipeline: Pipeline, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.create_collection("t", "default", SettingsRequest(level_sizes=(64,)))
    open_collection = engine.writer.open
    misses = [errors.CollectionNotFound("not yet")]

    def open_late(tenant_id: str, name: str) -> Any:
        if misses:
            raise misses.pop()
        return open_collection(tenant_id, name)

    monkeypatch.setattr(engine.writer, "open", open_late)
    assert len(_ingest(pipeline, Document(TEXT)).chunks_per_level) == 1


def test_a_new_collection_has_the_default_settings_of_the_service(pipeline: Pipeline) -> None:
    collection, sequence = pipeline.create_collection("t", "c", SettingsRequest())
    assert collection.settings.tree == TREE
    assert (collection.settings.embedder, collection.settings.dimension) == ("hash/16", 16)
    assert collection.settings.return_level is None
    assert sequence == 1


def test_a_new_collection_has_the_requested_settings(pipeline: Pipeline) -> None:
    request = SettingsRequest((64, 256), 0.0, 1, 1)
    collection, _ = pipeline.create_collection("t", "c", request)
    assert collection.settings.tree == TreeSettings((64, 256), 0.0, 1)
    assert collection.settings.return_level == 1
    assert len(_ingest(pipeline, Document(TEXT), "c").chunks_per_level) == 2


@pytest.mark.parametrize(
    ("request_settings", "field"),
    [
        (SettingsRequest(level_sizes=(256, 128)), "level_sizes"),
        (SettingsRequest(level_sizes=(16,)), "level_sizes"),
        (SettingsRequest(level_sizes=(2048,)), "level_sizes"),
        (SettingsRequest(overlap_ratio=0.6), "overlap_ratio"),
        (SettingsRequest(embedding_level=3), "embedding_level"),
        (SettingsRequest(embedding_level=1, return_level=0), "return_level"),
    ],
)
def test_invalid_settings_are_refused(
    pipeline: Pipeline, request_settings: SettingsRequest, field: str
) -> None:
    with pytest.raises(errors.InvalidArgument) as caught:
        pipeline.create_collection("t", "c", request_settings)
    assert caught.value.field == field


def test_leaves_longer_than_the_limit_of_the_embedder_are_refused(pipeline: Pipeline) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"2048 tokens.*hash/16 accepts at most 1000"):
        pipeline.create_collection("t", "c", SettingsRequest(level_sizes=(2048,)))


def test_a_collection_is_created_only_once(pipeline: Pipeline) -> None:
    pipeline.create_collection("t", "c", SettingsRequest())
    with pytest.raises(errors.CollectionExists):
        pipeline.create_collection("t", "c", SettingsRequest())


# The following tests cover embedders.


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (CountingEmbedder(name="other/model"), "runs other/model"),
        (CountingEmbedder(32, name="hash/16"), r"runs hash/16 \(32 dimensions\)"),
        (UnreachableEmbedder(), "runs openai/far-away"),
    ],
)
def test_an_embedder_other_than_the_one_of_the_collection_is_refused(
    pipeline: Pipeline, engine: Engine, other: CountingEmbedder, named: str
) -> None:
    _ingest(pipeline, Document(TEXT, "d"))
    changed = _pipeline(engine, other)
    with pytest.raises(errors.EmbedderMismatch, match=rf"hash/16 \(16 dimensions\).*{named}"):
        _ingest(changed, Document("Something else.", "d"))
    assert _ingest(changed, Document(TEXT, "d")).outcome is IngestOutcome.UNCHANGED


def test_the_vectors_of_the_embedder_are_stored(
    pipeline: Pipeline, engine: Engine, embedder: CountingEmbedder
) -> None:
    _ingest(pipeline, Document(TEXT, "d"))
    query = HashEmbedder(16).embed([embedder.embedded_texts[2]])[0]
    with engine.reader.snapshot("t", "default") as snapshot:
        (best,) = search_leaves(snapshot, query, 1).values()
    assert best == pytest.approx(1)
