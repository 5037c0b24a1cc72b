"""Builds a small store of two tenants, flips a bit of its file, and reads answers from the store.

Reading a flipped bit may crash the process, so `Examiner` reads each store in a child process.
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
from hrag.engine import Engine, ExportedDocument, Reader, StoredDocument, Writer, open_engine
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.admin.check_process import check_apart
from hrag.engine.embedded.store import content, schema
from hrag.engine.embedded.store.environment import open_alone, open_for_writing
from hrag.engine.embedded.store.tables import stored_entries
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.engine.engine_documents import DamagedDocument, DocumentSummaries, Summary
from hrag.engine.find import VALUES, FindRequest
from hrag.errors import DataLoss, HragError, StoreUnavailable
from hrag.filters import AllOf, Exists, Filter, Match, NoneOf, Range
from hrag.text import tokens
from hrag.types import DEFAULT_CONTEXT_TOKENS, Retrieval, SearchMode, SummaryUnit
from hrag.values.ids import ChunkId
from hrag.values.tree import ParsedText, Section
from tests.attacks.lmdb_pages import PAGE_BYTES
from tests.support.documents.fakes import (
    ENCODED,
    collection_settings,
    prepared,
    query_vector,
    seal,
    sentences,
    unit_vectors,
)
from tests.support.servers import forked  # noqa: F401  Sets the modules that forkserver preloads.

PLACES = (("acme", "plain"), ("umbra", "summarised"))
"""The tenant and the name of each collection."""
_DOCUMENTS = 9
_SEALED = 5
# The limit for examining one store, in seconds of wall-clock time. An undamaged store takes 1 s.
_EXAMINATION_S = 60
# The limit of the data segment of an examining process. LMDB's memory map is not part of it.
_EXAMINATION_BYTES = 1 << 30
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
    """The offsets of a stored value in the file, and the document to which it belongs."""

    start: int
    end: int
    database: str
    """The LMDB database; for a value of document content, the name of the content's part."""
    document: str
    """`tenant/collection` and the document's id after a space; empty if no document has the value.
    """


@dataclass
class Examined:
    """The results of examining one store. A field is None if the process ended before its step."""

    ended: int = 0
    """The exit code of the process; -n if signal n ended it. SIGALRM ends it at the time limit."""
    answers: dict[str, Any] | None = None
    """What `answers` returned for the damaged store."""
    problems: tuple[str, ...] | None = None
    """The problems that `check` found in the damaged store."""
    after: tuple[str, ...] | None = None
    """The problems that remain after all documents have been ingested again."""
    mended: dict[str, Any] | None = None
    """The documents of each collection after all documents have been ingested again."""
    failures: list[str] = field(default_factory=list)
    """The exceptions that were raised, each after the name of the step that raised it."""


# These functions build a store.


def build(folder: Path) -> None:
    """Creates the store: each tenant has documents in a segment and in the tail."""
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
    # Vacuuming removes pages with old values, so every flipped bit is in a current page.
    _engine(folder).administration().vacuum()


def documents(tenant: str) -> list[StoredDocument]:
    """Returns the tenant's documents. Each has sections, metadata and summaries."""
    stored_documents = []
    for number in range(_DOCUMENTS):
        seed = number + 100 * (tenant != PLACES[0][0])
        text = sentences(20 + 40 * (number % 4), seed)
        sections = (Section("First", 1, 0), Section("Second", 2, len(text) // 2))
        metadata = {"colour": ("red", "blue")[number % 2], "number": number, "tags": [tenant, "x"]}
        document = prepared(f"d{number}", ParsedText(text, sections), seed=seed, metadata=metadata)
        leaves = len(document.vectors)
        summaries = DocumentSummaries(
            (Summary(f"All of {seed}", range(leaves)), Summary("First half", range(leaves // 2))),
            unit_vectors(2, seed + 7),
        )
        stored_documents.append(StoredDocument(document, summaries))
    return stored_documents


def stored_in(tenant: str, name: str) -> list[StoredDocument]:
    """Returns the tenant's documents as the collection stores them: `plain` has no summaries."""
    if name == "summarised":
        return documents(tenant)
    return [StoredDocument(stored.document) for stored in documents(tenant)]


def _put(writer: Writer, tenant: str, name: str, stored: StoredDocument) -> None:
    writer.put_stored(writer.open(tenant, name), stored)


def _engine(folder: Path) -> Engine:
    return open_engine(EngineSettings().model_copy(update={"data_dir": folder}))


def values(folder: Path) -> list[Value]:
    """Returns every value of the store, or each part of a document's content, with its offsets."""
    values = []
    with closing(open_alone(folder)) as store, store.read() as txn:
        mapped_at = _address_of_map(folder / "data.mdb")
        for name in schema.DATABASES:
            for key, value in stored_entries(txn, store.databases[name]):
                if value:
                    start = np.frombuffer(value, np.uint8).ctypes.data - mapped_at
                    whose = _document_of(txn, name, bytes(key))
                    if name == schema.CONTENTS:
                        parts = _parts_of(txn, bytes(key), len(value))
                    else:
                        parts = {name: range(len(value))}
                    values += [
                        Value(start + offsets.start, start + offsets.stop, part, whose)
                        for part, offsets in parts.items()
                    ]
    return values


def _parts_of(txn: Txn, key: bytes, length: int) -> dict[str, range]:
    """Returns which parts of a document's content are in one value, with offsets in the value."""
    slot, number = key[: schema.SLOT_BYTES], key[schema.SLOT_BYTES]
    values = [value for _, value in txn.contents.stored(slot)]
    before = sum(map(len, values[:number]))
    (address,) = (
        schema.address(slot, *schema.read_in_collection(entry))
        for entry, value in txn.ordinals.stored()
        if bytes(value[4:12]) == slot
    )
    bounds = content.Content(address, values[0]).bounds
    spans = dict(zip(content.PARTS, bounds, strict=True))
    parts = {
        name: range(max(start - before, 0), min(end - before, length))
        for name, (start, end) in spans.items()
    }
    return {name: offsets for name, offsets in parts.items() if offsets}


def _address_of_map(file: Path) -> int:
    """Returns the address at which this process has mapped the beginning of the file."""
    maps = Path("/proc/self/maps").read_text("utf-8").splitlines()
    (line,) = (line for line in maps if line.endswith(str(file.resolve())))
    return int(line.split("-")[0], 16)


def _document_of(txn: Txn, name: str, key: bytes) -> str:
    if name in schema.BY_SLOT:
        for entry, value in txn.ordinals.stored():
            if bytes(value[4:12]) == key[: schema.SLOT_BYTES]:
                return _name(*schema.read_in_collection(entry), txn)
    if name in ("ordinals", "summarised"):
        return _name(*schema.read_in_collection(key), txn)
    if name == "document_ids":
        return f"{_PLACE_OF[schema.read_u32(key[:4])]} {key[4:].decode()}"
    return ""


_PLACE_OF = {number: "/".join(PLACES[place]) for number, place in ((1, 0), (2, 1), (3, 1))}


def _name(collection: int, ordinal: int, txn: Txn) -> str:
    for key, value in txn.document_ids.stored(collection):
        if schema.read_u64(value[:8]) == ordinal:
            return f"{_PLACE_OF[collection]} {str(key[4:], 'utf-8')}"
    return ""


def pages_of(values: list[Value]) -> list[int]:
    """Returns the page numbers of the LMDB pages that contain these values, ascending."""
    return sorted(
        {
            page
            for value in values
            for page in range(value.start // PAGE_BYTES, (value.end - 1) // PAGE_BYTES + 1)
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
    """Yields `count` random pairs of an offset in one of the pages and a bit from 0 to 7."""
    drawn = random.Random(seed)
    for _ in range(count):
        yield drawn.choice(pages) * PAGE_BYTES + drawn.randrange(PAGE_BYTES), drawn.randrange(8)


# These functions examine a store.


class Examiner:
    """Examines each store in a new process.

    The process is forked from a process that has loaded all needed modules, so it starts quickly.
    """

    def __init__(self) -> None:
        self._connection, theirs = _context.Pipe()
        self._process = _context.Process(target=_fork_on_request, args=(theirs,), daemon=True)
        self._process.start()

    def examine(self, folder: Path) -> Examined:
        """Reads, checks and mends a store in a child process; returns what that process found.

        If a signal ends the child process, the result has what was found until then.
        """
        results = folder.with_suffix(".found")
        results.unlink(missing_ok=True)
        self._connection.send((folder, results))
        assert self._connection.poll(2 * _EXAMINATION_S), "the process that forks does not answer"
        ended = self._connection.recv()
        examined = pickle.loads(results.read_bytes()) if results.exists() else Examined()
        return replace(examined, ended=ended)

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
    """Examines a store within limits of time and memory, then exits.

    With a flipped length in the store, a read could allocate all memory of the machine.
    """
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
    examined = Examined()

    def step(name: str, work: Callable[[], Any]) -> None:
        try:
            setattr(examined, name, work())
        except HragError as error:
            setattr(
                examined, name, {"": _failure(error)} if name in ("answers", "mended") else None
            )
            examined.failures.append(f"{name}: {error!r}")
        except Exception as error:
            examined.failures.append(f"{name}: {error!r}")
        partial = results.with_suffix(".partial")
        partial.write_bytes(pickle.dumps(examined))
        partial.rename(results)

    step("problems", lambda: _problems(folder))
    step("answers", lambda: _answers_in(folder))
    step("after", lambda: _mend(folder))
    step("mended", lambda: _exports_in(folder))


def is_reported(folder: Path) -> bool:
    """Returns True if `check`, run in a child process, reports that the store is damaged."""
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
        return {"/".join(at): [plain(stored) for stored in reader.export(*at)] for at in PLACES}
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
    """Returns the answers to searches of every mode and to reads of every document, by question.

    If a call raises an error of hrag, the answer is that error as a tuple; see `_failure`.
    """
    answers_by_question: dict[str, Any] = {}
    for tenant, name in PLACES:
        place = f"{tenant}/{name}"

        def ask(question: str, work: Callable[[Any], Any], place: str = place) -> None:
            answers_by_question[f"{place} {question}"] = _outcome(place, reader, work)

        for mode in SearchMode:
            if mode is SearchMode.SUMMARY_FIRST and name != "summarised":
                continue
            for retrieval in Retrieval:
                request = _request(mode, retrieval, None)
                ask(f"{mode} {retrieval}", lambda s, r=request: _parts_of_result(s, r))
            request = _request(mode, Retrieval.HYBRID, None)
            ask(f"{mode} encoded", lambda s, r=request: s.find(r, ENCODED).passages)
        for chosen, filter in _FILTERS.items():
            request = _request(SearchMode.SMALL_TO_BIG, Retrieval.DENSE, filter)
            ask(f"filter {chosen}", lambda s, r=request: _parts_of_result(s, r))
        for number in range(_DOCUMENTS):
            top = ChunkId(f"d{number}", 2, 0)
            ask(f"hierarchy {number}", lambda s, t=top: s.hierarchy(t, 2, content=True))
            ask(f"chunk {number}", lambda s, n=number: s.chunk(ChunkId(f"d{n}", 0, 0)))
        ask("export", lambda _, t=tenant, n=name: [plain(x) for x in reader.export(t, n)])
    return answers_by_question


def _request(mode: SearchMode, retrieval: Retrieval, filter: Filter | None) -> FindRequest:
    options: dict[str, Any] = {}
    if mode is SearchMode.CONTEXT:
        options = {"token_budget": DEFAULT_CONTEXT_TOKENS, "merge_adjacent": True, "cut_last": True}
    level = 0 if mode in (SearchMode.STANDARD, SearchMode.SENTENCE_WINDOW) else 2
    return FindRequest(
        query_vector(1), mode, level, 12, 40, text=_QUERY, retrieval=retrieval, filter=filter,
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


def _parts_of_result(snapshot: Any, request: FindRequest) -> Any:
    result = snapshot.find(request, VALUES)
    return result.passages, result.sections, result.eligible_leaves


def plain(stored: ExportedDocument) -> Any:
    """Returns the parts of a stored document that tests compare.

    Raises DataLoss if the document is damaged.
    """
    if isinstance(stored, DamagedDocument):
        raise DataLoss(stored.problem)
    document, summaries = stored.document, stored.summaries
    plain_summaries = summaries and (summaries.summaries, summaries.vectors.tobytes())
    return (
        document.document_id,
        document.title,
        dict(document.metadata),
        document.parsed,
        document.tree.to_bytes(),
        document.vectors.tobytes(),
        plain_summaries,
    )
