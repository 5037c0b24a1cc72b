"""Tests of the check that the postings of a segment agree with the documents' texts."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hrag.engine.common.labels import ordinals_of
from hrag.engine.embedded.admin.check import check as check_store
from hrag.engine.embedded.admin.checks import posting_checks
from hrag.engine.embedded.segments import postings_part, segment_files
from hrag.engine.embedded.segments.segment_files import POSTINGS, ROWS
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, open_for_writing
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.engine.embedded.store.queries import listed_segments, set_analyzer
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import StorageFull, StoreUnavailable
from hrag.types import CollectionSettings
from hrag_fast import Postings, write_postings
from tests.crash.disks import MIB, Ballast, small_disk
from tests.support.documents.fakes import collection_settings, run_maintenance, seal
from tests.support.documents.vocabulary import wordy
from tests.support.engines.damage import delete_content, put_encoded, put_part

SEGMENT = "collection t/c: segment 1: "
# No tail reaches this threshold, so maintenance merges segments but does not seal the tail.
NO_SEALING = 10**9
# Batches are so small that the check compares the postings of a segment in several batches.
check = partial(check_store, batch_entries=200)
SETTINGS = collection_settings()
WITHOUT_HEADINGS = replace(SETTINGS, index_headings=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store that is not checked at the end of the test, because it is damaged by then."""
    store = open_for_writing(tmp_path / "store")
    yield store
    store.close()


def sealed(store: Store, settings: CollectionSettings = SETTINGS) -> EmbeddedWriter:
    """Creates a collection with a segment of eight documents, with the ordinals 1 to 8."""
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", settings)
    put(writer, settings, range(8))
    seal(store, 1)
    return writer


def put(writer: EmbeddedWriter, settings: CollectionSettings, numbers: range) -> None:
    for number in numbers:
        writer.put(writer.open("t", "c"), wordy(f"d{number}", number, settings))


def delete(writer: EmbeddedWriter, *numbers: int) -> None:
    for number in numbers:
        writer.delete(writer.open("t", "c"), f"d{number}")


def only_segment(store: Store) -> SegmentRecord:
    """Returns the record of the collection's only segment."""
    with store.read() as txn:
        (record,) = listed_segments(txn, 1)
    return record


def relist(store: Store, record: SegmentRecord, **fields: object) -> None:
    """Replaces a segment's record in the manifest by a copy with changed fields."""
    with store.write() as txn:
        txn.segments.put((1, record.last_ordinal), replace(record, **fields))


def update_checksum(store: Store, name: str) -> None:
    """Writes the present checksum of a file of the only segment into the manifest."""
    record = only_segment(store)
    file = segment_files.sync_file(file_of(store, name))
    relist(store, record, files={**record.files, name: file})


def file_of(store: Store, name: str) -> Path:
    return segment_files.path_of(store.segments, only_segment(store).segment_id) / name


def first_row(store: Store, ordinal: int) -> int:
    """Returns the row of the document's first leaf in the only segment."""
    loaded = segment_files.load(store.segments, only_segment(store))
    return int(np.searchsorted(ordinals_of(loaded.rows.labels), ordinal))


def swap_postings(store: Store, *ordinals: int) -> None:
    """Exchanges the postings of the first leaves of two documents."""
    path = file_of(store, POSTINGS)
    stored = Postings(path.read_bytes())
    rows = np.arange(stored.rows, dtype=np.uint32)
    first, second = (first_row(store, ordinal) for ordinal in ordinals)
    rows[[first, second]] = second, first
    write_postings(path, [(stored, rows)])
    update_checksum(store, POSTINGS)


@contextmanager
def changed_rows(store: Store) -> Iterator[dict[str, NDArray[Any]]]:
    """Yields the arrays of the only segment's rows; stores them after the caller changed them."""
    path = file_of(store, ROWS)
    with np.load(path) as packed:
        arrays = dict(packed)
    yield arrays
    np.savez(path, **arrays)
    update_checksum(store, ROWS)


@pytest.mark.parametrize("settings", [SETTINGS, WITHOUT_HEADINGS])
def test_postings_of_several_segments_are_sound(store, settings):
    """Both segments have tombstones, and the collection has a tail."""
    writer = sealed(store, settings)
    put(writer, settings, range(8, 12))
    seal(store, 1)
    put(writer, settings, range(12, 14))
    delete(writer, 0, 3, 11, 13)
    report = check(store)
    assert (report.segments, report.problems) == (2, ())


@pytest.mark.parametrize("run_leaves", [1, 7, 1000])
def test_merged_postings_are_sound(store, monkeypatch, run_leaves):
    """This holds for any count of merged runs, and after rows of deleted leaves were dropped."""
    with monkeypatch.context() as patch:
        patch.setattr(postings_part, "RUN_LEAVES", run_leaves)
        writer = sealed(store)
        put(writer, SETTINGS, range(8, 16))
        delete(writer, 2, 9)
        seal(store, 1)
        run_maintenance(store, 1, NO_SEALING)
    delete(writer, 4, 5)
    report = check(store)
    assert (report.segments, report.problems) == (1, ())


def test_a_segment_with_only_deleted_leaves_is_sound(store):
    delete(sealed(store), *range(8))
    report = check(store)
    assert (report.segments, report.problems) == (1, ())


def test_a_segment_without_postings_is_sound(store):
    sealed(store, collection_settings(analyzer=""))
    assert check(store).problems == ()


def test_postings_of_other_texts_are_found(store):
    """The file of postings is intact: it has the checksum that the manifest lists."""
    delete(sealed(store), 1)
    swap_postings(store, 5, 7)
    problem = f"{SEGMENT}its postings differ from the texts, first in ordinal 5"
    assert check(store).problems == (problem,)


def test_postings_of_deleted_documents_are_not_compared(store):
    writer = sealed(store)
    swap_postings(store, 5, 7)
    delete(writer, 4, 6)
    assert check(store).problems == ()


def test_lengths_of_other_texts_are_found(store):
    sealed(store)
    row = first_row(store, 3)
    with changed_rows(store) as arrays:
        arrays["lengths"][row] += 1
    problem = f"{SEGMENT}its postings differ from the texts, first in ordinal 3"
    assert check(store).problems == (problem,)


def test_rows_in_another_order_are_found(store):
    sealed(store)
    with changed_rows(store) as arrays:
        arrays["labels"][:2] = arrays["labels"][1::-1]
    assert check(store).problems == (f"{SEGMENT}its rows are not in order of label",)


def test_rows_of_leaves_that_do_not_exist_are_found(store):
    sealed(store)
    last = first_row(store, 7) - 1
    with changed_rows(store) as arrays:
        arrays["labels"][last] += 1
    assert check(store).problems == (f"{SEGMENT}its rows are not the leaves of its documents",)


def test_a_text_that_differs_from_its_postings_is_found(store):
    sealed(store)
    address = schema.address(schema.u64(4), 1, 4)
    with store.write() as txn:
        text = bytes(txn.contents.text(address)).replace(b"valve", b"slave")
        put_part(txn, address, "texts", text)
    problem = f"{SEGMENT}its postings differ from the texts, first in ordinal 4"
    assert check(store).problems == (problem,)


@pytest.mark.parametrize("settings", [SETTINGS, WITHOUT_HEADINGS])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("documents", None),
        ("texts", None),
        *((name, b"\xff" * 1000) for name in ("documents", "texts", "trees")),
    ],
)
def test_a_damaged_document_does_not_hide_damage_to_another(store, settings, name, value):
    """The rows of the damaged document are not compared; the check of documents reports it."""
    sealed(store, settings)
    with store.write() as txn:
        address = schema.address(schema.u64(2), 1, 2)
        if name == "documents" and value is None:
            txn.documents.delete(address)
        elif name == "documents":
            put_encoded(txn, name, address, value)
        elif value is None:
            delete_content(txn, address)
        else:
            put_part(txn, address, name, value)
    before = check(store).problems
    assert before != ()
    with store.write() as txn:
        address = schema.address(schema.u64(6), 1, 6)
        text = bytes(txn.contents.text(address)).replace(b"pump", b"dump")
        put_part(txn, address, "texts", text)
    problem = f"{SEGMENT}its postings differ from the texts, first in ordinal 6"
    assert set(check(store).problems) - set(before) == {problem}


def test_a_segment_whose_analyzer_is_not_its_collections_is_found(store):
    sealed(store)
    with store.write() as txn:
        set_analyzer(txn, 1, "")
    problem = f"{SEGMENT}its embedder, dimension or analyzer is not the collection's"
    assert check(store).problems == (problem,)


def test_an_analyzer_of_another_version_is_reported(store):
    sealed(store)
    relist(store, only_segment(store), analyzer="english/9")
    with store.write() as txn:
        set_analyzer(txn, 1, "english/9")
    (problem,) = check(store).problems
    assert problem.startswith(
        f"{SEGMENT}its postings cannot be compared with the texts: analyzer is"
    )


def test_a_full_folder_for_temporary_files_is_not_reported_as_damage(store, monkeypatch, tmp_path):
    sealed(store)
    with small_disk(tmp_path / "tmp", MIB) as temporary:
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        Ballast(temporary).fill()
        with pytest.raises(StorageFull, match=f"to {temporary}: No space .*; set TMPDIR to"):
            check(store)


def test_a_missing_folder_for_temporary_files_is_not_reported_as_damage(store, monkeypatch):
    sealed(store)
    missing = store.directory / "nonesuch"
    monkeypatch.setattr(tempfile, "tempdir", str(missing))
    with pytest.raises(StoreUnavailable, match=f"to {missing}: No such file .*; set TMPDIR to"):
        check(store)


def test_temporary_files_are_bounded_however_many_terms_a_leaf_has(store, monkeypatch):
    """The check writes one temporary file at a time.

    The file has at most as many entries as a full part and one more document.
    """
    writer = sealed(store)
    put(writer, SETTINGS, range(8, 24))
    seal(store, 1)
    run_maintenance(store, 1, NO_SEALING)
    sizes = list[int]()
    write = posting_checks.write_postings

    def write_and_measure(path: Path, parts: Any) -> None:
        write(path, parts)
        sizes.append(sum(file.stat().st_size for file in path.parent.iterdir()))

    monkeypatch.setattr(posting_checks, "write_postings", write_and_measure)
    assert check(store).problems == ()
    assert len(sizes) > 10  # The check writes two files for each part.
    assert max(sizes) < file_of(store, POSTINGS).stat().st_size / 3
