"""A flipped bit is detected: wrong bytes are never served.

Ingesting the damaged document again removes the damage.
"""

import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hrag.cli.terminal import ExitCode
from hrag.errors import DataLoss
from hrag.types import Document, Passage
from tests.attacks import flipped_store, lmdb_pages
from tests.attacks.flipped_store import Examined, Examiner, Value, flipped, random_flips
from tests.support.servers.processes import running

pytestmark = pytest.mark.attacks

_VALUES_OF_DOCUMENTS = ("documents", "texts", "trees", "vectors", "ordinals", "document_ids")
_NO_SUMMARIES = ((), b"")
_IN_CONTENT = ("documents", "texts", "trees", "vectors")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flips") / "store"
    flipped_store.build(folder)
    return folder


@pytest.fixture(scope="module")
def values(store: Path) -> list[Value]:
    return flipped_store.values(store)


@pytest.fixture(scope="module")
def examiner() -> Iterator[Examiner]:
    examiner = Examiner()
    yield examiner
    examiner.close()


@pytest.fixture(scope="module")
def right(
    store: Path, examiner: Examiner, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The answers of the undamaged store."""
    copy = tmp_path_factory.mktemp("right") / "store"
    shutil.copytree(store, copy)
    examined = examiner.examine(copy)
    assert examined.problems == examined.after == ()
    assert examined.failures == []
    assert examined.answers is not None
    assert not any(_is_error(answer) for answer in examined.answers.values())
    return examined.answers


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 20), pytest.param(2, 500, marks=pytest.mark.endurance)]
)
@pytest.mark.timeout(900)
def test_random_flips_are_never_served(store, values, right, examiner, tmp_path, seed, count):
    pages, counts = flipped_store.pages_of(values), Counter[str]()
    began = time.monotonic()
    for offset, bit in random_flips(seed, count, pages):
        flipped(store, tmp_path / "store", offset, bit)
        examined = examiner.examine(tmp_path / "store")
        hit = next((value for value in values if value.start <= offset < value.end), None)
        where = f"offset {offset}, bit {bit}, {hit}: {examined.problems}, {examined.failures}"
        where += f", ended with {examined.ended}"
        if hit is not None:
            _assert_value_is_guarded(examined, right, hit, where)
            counts["value"] += 1
        else:
            counts[_assert_structure_is_guarded(examined, right, tmp_path, where)] += 1
        counts[f"ended with {examined.ended}"] += 1
    seconds = (time.monotonic() - began) / count
    print(f"{count} flips, {seconds:.2f} s each: {dict(counts)}")  # noqa: T201


@pytest.mark.parametrize("count", [1, pytest.param(40, marks=pytest.mark.endurance)])
@pytest.mark.timeout(900)
def test_flips_in_the_structure_of_lmdb_are_reported(store, right, examiner, tmp_path, count):
    """Flips bits in page headers, pointers, nodes and keys of LMDB.

    No wrong answer is served. `check` does not hang and reports the damage.
    """
    drawn, counts = random.Random(count), Counter[str]()
    for part, offsets in lmdb_pages.structure_of(store).items():
        for offset in drawn.sample(offsets, min(count, len(offsets))):
            bit = drawn.randrange(8)
            flipped(store, tmp_path / "store", offset, bit)
            examined = examiner.examine(tmp_path / "store")
            where = f"{part}, offset {offset}, bit {bit}: {examined}"
            counts[f"{part}: {_assert_structure_is_guarded(examined, right, tmp_path, where)}"] += 1
            counts[f"ended with {examined.ended}"] += 1
    print(dict(counts))  # noqa: T201


@pytest.mark.parametrize("database", _VALUES_OF_DOCUMENTS)
def test_a_flip_in_a_value_is_reported_with_its_document_and_mended(
    store, values, right, examiner, tmp_path, database
):
    for seed, hit in enumerate(value for value in values if value.database == database):
        if seed % 7:
            continue
        offset = hit.start + (seed * 37) % (hit.end - hit.start)
        flipped(store, tmp_path / "store", offset, seed % 8)
        examined = examiner.examine(tmp_path / "store")
        _assert_value_is_guarded(examined, right, hit, f"offset {offset}, {hit}: {examined}")


def test_a_damaged_length_that_crashes_a_reading_process_is_reported(store, values, tmp_path):
    """Reading past the end of the file ends a process with SIGBUS.

    `hrag check` reads the store in a child process, so SIGBUS ends only that child.
    """
    value = next(value for value in values if value.end - value.start > lmdb_pages.PAGE_BYTES)
    flipped(store, tmp_path / "store", lmdb_pages.length_at(store, value.start), 6)
    done = _checked(tmp_path / "store")
    assert (done.returncode, done.stderr) == (1, "")
    assert "LMDB's own pages are damaged" in done.stdout
    backup = _hrag("backup", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "store"))
    assert backup.returncode == ExitCode.FAILED
    assert "Traceback" not in backup.stderr
    assert not (tmp_path / "backup").exists()


def test_services_answer_data_loss_and_a_new_ingestion_mends_it(tmp_path):
    """Real services refuse reads of the damaged document, and `hrag check` names it."""
    folder = tmp_path / "store"
    texts = {
        name: " ".join(f"The keeper of {name} counts ship {number}." for number in range(250))
        for name in "abc"
    }
    with running(folder) as services:
        for name, text in texts.items():
            services.client.ingest("acme", Document(text, name))
    _flip_in(folder, texts["b"].encode()[5000:5040])
    with running(folder) as services:
        with pytest.raises(DataLoss, match="document 'b'"):
            services.client.get_chunk("acme", "b#0.11")
        with pytest.raises(DataLoss, match="document 'b'"):
            services.client.search("acme", "ships", limit=10)
        assert _check(folder) == (1, True)
        services.client.ingest("acme", Document(texts["b"], "b"))
        assert services.client.search("acme", "ships", limit=10).passages
        assert _check(folder) == (0, False)


def _flip_in(folder: Path, content: bytes) -> None:
    """Flips a bit in every copy of `content` in the file."""
    data = folder / "data.mdb"
    raw = bytearray(data.read_bytes())
    at = raw.find(content)
    assert at >= 0
    while at >= 0:
        raw[at + 7] ^= 1
        at = raw.find(content, at + 1)
    data.write_bytes(raw)


def _check(folder: Path) -> tuple[int, bool]:
    """Returns the exit code of `hrag check`, and True if its output names document `b`."""
    done = _checked(folder)
    assert "Traceback" not in done.stderr
    return done.returncode, "document b " in done.stdout


def _checked(folder: Path) -> "subprocess.CompletedProcess[str]":
    return _hrag("check", "--data-dir", str(folder))


def _hrag(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", "from hrag.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


def _assert_value_is_guarded(
    examined: Examined, right: dict[str, Any], hit: Value, where: str
) -> None:
    """Fails unless each answer is correct or an error, and ingesting again mends the damage.

    If a document has the value, the error must be DATA_LOSS and `check` must name the document.
    """
    assert examined.answers is not None, where
    assert examined.problems, where
    wrong = {name: answer for name, answer in examined.answers.items() if answer != right.get(name)}
    assert all(_is_error(answer) for answer in wrong.values()), where
    if hit.document:
        place, document = hit.document.split(" ")
        named = [
            problem
            for problem in examined.problems
            if place in problem and f"{document!r}" in problem
        ]
        named += [
            problem
            for problem in examined.problems
            if place in problem and f"document {document} " in problem
        ]
        assert named, where
        assert all(answer[1] == "DataLoss" for answer in wrong.values()), where
    if hit.database in _IN_CONTENT:
        assert any(f"document {document!r}" in answer[2] for answer in wrong.values()), where
    if hit.database in (*_VALUES_OF_DOCUMENTS, "terms"):
        assert examined.after == (), f"{where}: {examined.after}"
        assert examined.mended is not None
        assert list(examined.mended.values()) == _exports(right), where


def _assert_structure_is_guarded(
    examined: Examined, right: dict[str, Any], folder: Path, where: str
) -> str:
    """Fails if a wrong answer is served, or if `check` does not report the damage.

    The damage may hide documents or crash the process. Returns `unused` if the flip had no effect,
    `other` otherwise.
    """
    assert examined.ended != -signal.SIGALRM, f"{where}: it hangs"
    if examined.problems is None:
        assert flipped_store.is_reported(folder / "store"), where
        return "other"
    if examined.answers is None:
        assert examined.problems, where
        return "other"
    wrong = {name: answer for name, answer in examined.answers.items() if answer != right.get(name)}
    for name, answer in wrong.items():
        assert _is_error(answer) or _is_genuine(name, answer), f"{where}: {name}"
    if wrong:
        assert examined.problems, f"{where}: {sorted(wrong)}"
    return "other" if wrong or examined.problems else "unused"


def _is_error(answer: Any) -> bool:
    return isinstance(answer, tuple) and len(answer) == 3 and answer[0] == "error"


def _exports(answers: dict[str, Any]) -> list[Any]:
    return [answer for name, answer in answers.items() if name.endswith("export")]


def _is_genuine(name: str, answer: Any) -> bool:
    """Returns True if every passage and document of an answer was stored by its tenant."""
    tenant, _, question = name.partition("/")
    stored = {
        stored.document.document_id: stored.document for stored in flipped_store.documents(tenant)
    }
    if name.endswith("export"):
        collection = question.split(" ")[0]
        written = [
            flipped_store.plain(stored) for stored in flipped_store.stored_in(tenant, collection)
        ]
        # Damage may hide a document's summaries; the rest of the document is still genuine.
        written += [(*document[:-1], _NO_SUMMARIES) for document in written]
        return all(document in written for document in answer)
    if name.endswith("encoded") or not (isinstance(answer, tuple) and len(answer) == 4):
        return True
    return all(_is_passage_of(passage, stored) for passage in answer[0])


def _is_passage_of(passage: Passage, stored: dict[str, Any]) -> bool:
    chunk = passage.chunk
    document = stored[chunk.document_id]
    text = document.parsed.text.encode()[chunk.span.byte_start : chunk.span.byte_end].decode()
    return (text, document.title, document.metadata) == (chunk.content, chunk.title, chunk.metadata)
