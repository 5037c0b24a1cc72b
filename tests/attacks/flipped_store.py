"""A small store of two tenants, one flipped bit in it, and what it answers then.

A flipped bit may end the process that reads it, so `Examiner` works in others.
"""

import logging
import multiprocessing
import os
import pickle
import random
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from hrag.config import EngineSettings
from hrag.engine import Engine, Exported, Reader, StoredDocument, Writer, open_engine
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.admin.check_process import check_apart
from hrag.engine.embedded.store import content, schema
from hrag.engine.embedded.store.environment import Store, open_alone, open_for_writing
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.engine.engine_documents import DocumentSummaries, Summary, UnreadableDocument
from hrag.engine.find import VALUES, FindRequest
from hrag.errors import DataLoss, HragError, StoreUnavailable
from hrag.filters import AllOf, Exists, Filter, Match, NoneOf, Range
from hrag.text import tokens
from hrag.types import DEFAULT_CONTEXT_TOKENS, Retrieval, SearchMode, SummaryUnit
from hrag.values.ids import ChunkId
from hrag.values.tree import ParsedText, Section
from tests import forked  # noqa: F401  It says what the server that forks has imported.
from tests.attacks.lmdb_pages import PAGE_BYTES
from tests.support.documents.fakes import (
    ENCODED,
    LEAVES,
    collection_settings,
    prepared,
    query_vector,
    seal,
    sentences,
    unit_vectors,
)

PLACES = (("acme", "plain"), ("umbra", "summarised"))
_DOCUMENTS = 9
_SEALED = 5
_EXAMINATION_S = 60  # Processor time and waiting; it takes 1 s where nothing is wrong.
_EXAMINATION_BYTES = 1 << 30  # LMDB's map is not counted.
_QUERY = "Sentence 3 tells a story"
_FILTERS: dict[str, Filter] = {
    "match": Match("metadata.colour", ("red",)),
    "range": Range("metadata.number", at_least=2),
    "tag": AllOf((Exists("metadata.tags"), NoneOf((Match("title", ("Title of d1",)),)))),
    "id": Match("document_id", ("d2", "d7")),
}

_context = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Value:
    """Where a stored value lies in the file, and whose it is."""

    start: int
    end: int
    database: str
    document: str
    """`tenant/collection`, and the document's id if it has one."""


@dataclass
class Examined:
    """What a process has found until it ended; a part is None if it did not get so far."""

    ended: int = 0
    """The exit code of the process, -n after signal n; SIGALRM means that it took too long."""
    answers: dict[str, Any] | None = None
    problems: tuple[str, ...] | None = None
    after: tuple[str, ...] | None = None
    """Problems that are left when all documents have been ingested again."""
    mended: dict[str, Any] | None = None
    failures: list[str] = field(default_factory=list)
    """Exceptions that are not of hrag."""


# Building


def build(folder: Path) -> None:
    """Makes the store: each tenant has documents in a segment and in the tail."""
    with closing(open_for_writing(folder)) as store:
        writer = EmbeddedWriter(store)
        for number, (tenant, name) in enumerate(PLACES):
            summaries = SummaryUnit.SECTION if number else SummaryUnit.NONE
            writer.create_collection(tenant, name, collection_settings(summaries=summaries))
            for document in stored_in(tenant, name)[:_SEALED]:
                _put(writer, tenant, name, document)
            for collection in (1 + number, 1 + 2 * number):
                seal(store, collection)
            for document in stored_in(tenant, name)[_SEALED:]:
                _put(writer, tenant, name, document)
    _engine(folder).administration().vacuum()  # So that no page holds what was before.


def documents(tenant: str) -> list[StoredDocument]:
    """The tenant's documents, each of several blocks of text in sections."""
    found = []
    for number in range(_DOCUMENTS):
        seed = number + 100 * (tenant != PLACES[0][0])
        text = sentences(20 + 40 * (number % 4), seed)
        sections = (Section("First", 1, 0), Section("Second", 2, len(text) // 2))
        metadata = {"colour": ("red", "blue")[number % 2], "number": number, "tags": [tenant, "x"]}
        document = prepared(f"d{number}", ParsedText(text, sections), seed=seed, metadata=metadata)
        leaves = len(document.vectors)
        own = DocumentSummaries(
            (Summary(f"All of {seed}", range(leaves)), Summary("First half", range(leaves // 2))),
            unit_vectors(2, seed + 7),
        )
        found.append(StoredDocument(document, own))
    return found


def stored_in(tenant: str, name: str) -> list[StoredDocument]:
    """The tenant's documents as its collection has them: not all have summaries."""
    if name == "summarised":
        return documents(tenant)
    return [StoredDocument(each.document) for each in documents(tenant)]


def _put(writer: Writer, tenant: str, name: str, stored: StoredDocument) -> None:
    writer.put_stored(writer.open(tenant, name), stored)


def _engine(folder: Path) -> Engine:
    return open_engine(EngineSettings().model_copy(update={"data_dir": folder}))


def values(folder: Path) -> list[Value]:
    """Every value of the store, by where it lies in the file."""
    found = []
    with closing(open_alone(folder)) as store, store.read() as txn:
        mapped_at = _address_of_map(folder / "data.mdb")
        for name in schema.DATABASES:
            for key, value in txn.entries(store.db[name]):
                if value:
                    start = np.frombuffer(value, np.uint8).ctypes.data - mapped_at
                    whose = _document_of(store, txn, name, bytes(key))
                    if name == schema.CONTENTS:
                        parts = _parts_of(store, txn, bytes(key), len(value))
                    else:
                        parts = {name: range(len(value))}
                    found += [
                        Value(start + each.start, start + each.stop, part, whose)
                        for part, each in parts.items()
                    ]
    return found


def _parts_of(store: Store, txn: Any, key: bytes, length: int) -> dict[str, range]:
    """The parts of a document that a value of its content holds, by their offsets in it."""
    slot, number = key[: schema.SLOT_BYTES], key[schema.SLOT_BYTES]
    values = [value for _, value in txn.entries(store.db[schema.CONTENTS], slot)]
    before = sum(map(len, values[:number]))
    (address,) = (
        schema.address(slot, *schema.read_in_collection(entry))
        for entry, value in txn.entries(store.db["ordinals"])
        if bytes(value[4:12]) == slot
    )
    bounds = content.Content(address, values[0]).bounds
    found = dict(zip(content.PARTS, bounds, strict=True))
    parts = {
        name: range(max(start - before, 0), min(end - before, length))
        for name, (start, end) in found.items()
    }
    return {name: each for name, each in parts.items() if each}


def _address_of_map(file: Path) -> int:
    """Where this process has mapped the beginning of the file."""
    maps = Path("/proc/self/maps").read_text("utf-8").splitlines()
    (line,) = (each for each in maps if each.endswith(str(file.resolve())))
    return int(line.split("-")[0], 16)


def _document_of(store: Store, txn: Any, name: str, key: bytes) -> str:
    if name in schema.BY_SLOT:
        for entry, value in txn.entries(store.db["ordinals"]):
            if bytes(value[4:12]) == key[: schema.SLOT_BYTES]:
                return _name(*schema.read_in_collection(entry), store, txn)
    if name in ("ordinals", "summarised"):
        return _name(*schema.read_in_collection(key), store, txn)
    if name == "document_ids":
        return f"{_PLACE_OF[schema.read_u32(key[:4])]} {key[4:].decode()}"
    return ""


_PLACE_OF = {number: "/".join(PLACES[place]) for number, place in ((1, 0), (2, 1), (3, 1))}


def _name(collection: int, ordinal: int, store: Store, txn: Any) -> str:
    for key, value in txn.entries(store.db["document_ids"], schema.u32(collection)):
        if schema.read_u64(value[:8]) == ordinal:
            return f"{_PLACE_OF[collection]} {str(key[4:], 'utf-8')}"
    return ""


def pages_of(found: list[Value]) -> list[int]:
    """The pages that hold a document's values or what leads to them."""
    return sorted(
        {
            page
            for each in found
            for page in range(each.start // PAGE_BYTES, (each.end - 1) // PAGE_BYTES + 1)
        }
    )


def flipped(folder: Path, target: Path, offset: int, bit: int) -> None:
    """Copies the store to `target` and flips one bit of its file."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    with (target / "data.mdb").open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def random_flips(seed: int, count: int, pages: list[int]) -> Iterator[tuple[int, int]]:
    """Yields offsets and bits in the pages."""
    drawn = random.Random(seed)
    for _ in range(count):
        yield drawn.choice(pages) * PAGE_BYTES + drawn.randrange(PAGE_BYTES), drawn.randrange(8)


# Examining


class Examiner:
    """Examines stores, each in a process forked from one that has loaded all it needs."""

    def __init__(self) -> None:
        self._connection, theirs = _context.Pipe()
        self._process = _context.Process(target=_fork_on_request, args=(theirs,), daemon=True)
        self._process.start()

    def examine(self, folder: Path) -> Examined:
        """Reads, checks and mends a store; the process may end by a signal."""
        results = folder.with_suffix(".found")
        results.unlink(missing_ok=True)
        self._connection.send((folder, results))
        assert self._connection.poll(2 * _EXAMINATION_S), "the process that forks does not answer"
        ended = self._connection.recv()
        found = pickle.loads(results.read_bytes()) if results.exists() else Examined()
        return replace(found, ended=ended)

    def close(self) -> None:
        self._process.kill()
        self._process.join()


def _fork_on_request(connection: Connection) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    tokens.encode("Loads the vocabulary.")
    while True:
        folder, results = connection.recv()
        pid = os.fork()
        if not pid:
            _examine_and_exit(folder, results)
        connection.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _examine_and_exit(folder: Path, results: Path) -> None:
    """Within limits: a flipped length must not take the memory of the machine."""
    exit_code = 1
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (_EXAMINATION_BYTES, _EXAMINATION_BYTES))
        signal.alarm(_EXAMINATION_S)
        _examine(folder, results)
        exit_code = 0
    finally:
        os._exit(exit_code)


def _examine(folder: Path, results: Path) -> None:
    found = Examined()

    def step(name: str, work: Callable[[], Any]) -> None:
        try:
            setattr(found, name, work())
        except HragError as error:
            setattr(found, name, {"": _failure(error)} if name in ("answers", "mended") else None)
            found.failures.append(f"{name}: {error!r}")
        except Exception as error:
            found.failures.append(f"{name}: {error!r}")
        partial = results.with_suffix(".partial")
        partial.write_bytes(pickle.dumps(found))
        partial.rename(results)

    step("problems", lambda: _problems(folder))
    step("answers", lambda: _answers_in(folder))
    step("after", lambda: _mend(folder))
    step("mended", lambda: _exports_in(folder))


def is_reported(folder: Path) -> bool:
    """Whether `check` in a process of its own finds that the store is damaged."""
    try:
        problems = check_apart(folder).problems
        assert "Traceback" not in str(problems)
        return bool(problems)
    except StoreUnavailable:
        return True


def _problems(folder: Path) -> tuple[str, ...]:
    with closing(open_alone(folder)) as store:
        return check(store).problems


def _answers_in(folder: Path) -> dict[str, Any]:
    engine = _engine(folder)
    try:
        return answers(engine.reader())
    finally:
        engine.close()


def _exports_in(folder: Path) -> dict[str, Any]:
    engine = _engine(folder)
    try:
        reader = engine.reader()
        return {"/".join(at): [plain(each) for each in reader.export(*at)] for at in PLACES}
    finally:
        engine.close()


def _mend(folder: Path) -> tuple[str, ...]:
    engine = _engine(folder)
    try:
        writer = engine.writer()
        for tenant, name in PLACES:
            for document in stored_in(tenant, name):
                _put(writer, tenant, name, document)
    finally:
        engine.close()
    return _problems(folder)


def answers(reader: Reader) -> dict[str, Any]:
    """Asks for everything, in every mode; an error is an answer."""
    found: dict[str, Any] = {}
    for tenant, name in PLACES:
        place = f"{tenant}/{name}"

        def ask(question: str, work: Callable[[Any], Any], place: str = place) -> None:
            found[f"{place} {question}"] = _outcome(place, reader, work)

        for mode in SearchMode:
            if mode is SearchMode.SUMMARY_FIRST and name != "summarised":
                continue
            for retrieval in Retrieval:
                request = _request(mode, retrieval, None)
                ask(f"{mode} {retrieval}", lambda s, r=request: _found(s, r))
            request = _request(mode, Retrieval.HYBRID, None)
            ask(f"{mode} encoded", lambda s, r=request: s.find(r, ENCODED).passages)
        for chosen, given in _FILTERS.items():
            request = _request(SearchMode.SMALL_TO_BIG, Retrieval.DENSE, given)
            ask(f"filter {chosen}", lambda s, r=request: _found(s, r))
        for number in range(_DOCUMENTS):
            top = ChunkId(f"d{number}", 2, 0)
            ask(f"hierarchy {number}", lambda s, t=top: s.hierarchy(t, 2, content=True))
            ask(f"chunk {number}", lambda s, n=number: s.chunk(ChunkId(f"d{n}", 0, 0)))
        ask("export", lambda _, t=tenant, n=name: [plain(x) for x in reader.export(t, n)])
    return found


def _request(mode: SearchMode, retrieval: Retrieval, given: Filter | None) -> FindRequest:
    options: dict[str, Any] = {}
    if mode is SearchMode.CONTEXT:
        options = {"token_budget": DEFAULT_CONTEXT_TOKENS, "merge_adjacent": True, "cut_last": True}
    level = 0 if mode in (SearchMode.STANDARD, SearchMode.SENTENCE_WINDOW) else 2
    return FindRequest(
        query_vector(1), mode, level, 12, 40, text=_QUERY, retrieval=retrieval, filter=given,
        **options,
    )  # fmt: skip


def _outcome(place: str, reader: Reader, work: Callable[[Any], Any]) -> Any:
    tenant, _, name = place.partition("/")
    try:
        with reader.snapshot(tenant, name, summaries=name == "summarised") as snapshot:
            return work(snapshot)
    except HragError as error:
        return _failure(error)


def _failure(error: HragError) -> tuple[str, str, str]:
    return ("error", type(error).__name__, error.message)


def _found(snapshot: Any, request: FindRequest) -> Any:
    is_window = request.mode is SearchMode.SENTENCE_WINDOW
    found = snapshot.find(request, LEAVES if is_window else VALUES)
    return found.passages, found.sections, found.eligible_leaves


def plain(stored: Exported) -> Any:
    """The parts of a stored document, to be compared. Raises DataLoss for a damaged one."""
    if isinstance(stored, UnreadableDocument):
        raise DataLoss(stored.problem)
    document, own = stored.document, stored.summaries
    summaries = own and (own.summaries, own.vectors.tobytes())
    return (
        document.document_id,
        document.title,
        dict(document.metadata),
        document.parsed,
        document.tree.to_bytes(),
        document.vectors.tobytes(),
        summaries,
    )
