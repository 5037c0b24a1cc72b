"""Tests of segment files: written completely or not at all, and read only if undamaged."""

import errno
import mmap
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import hnswlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.embedded.segments import segment_files, vector_part
from hrag.engine.embedded.segments.builder import SegmentBuilder
from hrag.engine.embedded.segments.leaves import LeafBlock
from hrag.engine.embedded.segments.postings_part import PostingsPart
from hrag.engine.embedded.segments.vector_part import VectorPart
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.host import durable_files
from hrag.text.analysis import analyzer
from hrag_fast import DenseSearch, NearestRows
from tests.support.documents.fakes import ANALYZER, query_vector, unit_vectors

FILES = ("index.hnsw", "postings.bin", "rows.npz")
IDS = analyzer(ANALYZER).word_ids("even odd")


def block(vectors: np.ndarray) -> LeafBlock:
    """Returns leaves with these vectors. The text of leaf n is n and the word `even` or `odd`."""
    count = len(vectors)
    texts = [f"{n} {'odd' if n % 2 else 'even'}" for n in range(count)]
    labels = np.arange(count, dtype=np.uint64)
    terms = analyzer(ANALYZER).leaf_terms(texts)
    return LeafBlock(labels, np.zeros((1, count), np.uint32), vectors, terms)


def sealed(folder: Path, vectors: np.ndarray, segment_id: int = 1) -> SegmentRecord:
    """Writes a segment whose leaves have these vectors. Returns its record."""
    count = len(vectors)
    part = VectorPart(vector_part.new_index(vectors.shape[1], count))
    builder = SegmentBuilder(1, [part, PostingsPart()])
    builder.add(block(vectors))
    return SegmentRecord(
        segment_id=segment_id,
        space=vector_part.SPACE,
        embedder="fake",
        dimension=vectors.shape[1],
        rows=count,
        items=part.item_count,
        first_ordinal=1,
        last_ordinal=1,
        covered_sequence=1,
        files=segment_files.write(folder, segment_id, builder.write),
        analyzer=ANALYZER,
    )


@pytest.fixture
def record(tmp_path):
    """The record of a segment of 200 leaves, whose files are in `tmp_path`."""
    return sealed(tmp_path, unit_vectors(200, seed=1))


def path_of(folder: Path, record: SegmentRecord, name: str) -> Path:
    return segment_files.path_of(folder, record.segment_id) / name


def nearest(loaded: segment_files.LoadedSegment, query: np.ndarray, count: int) -> NearestRows:
    """Returns the rows that a search of the segment's graph finds."""
    rows = loaded.record.rows
    tail, alive = np.empty((0, len(query)), np.float32), np.ones(rows, np.uint8)
    return DenseSearch(query, [loaded.vectors], tail, alive, rows, rows, search_cost=0).nearest(
        count
    )


class WithoutHugePages(mmap.mmap):
    def madvise(self, *_: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")


@pytest.mark.parametrize("mmap_class", [mmap.mmap, WithoutHugePages])
def test_large_segments_are_loaded_with_or_without_huge_pages(
    mmap_class, tmp_path, record, monkeypatch
):
    monkeypatch.setattr(segment_files.mmap, "mmap", mmap_class)
    assert len(segment_files.load(tmp_path, record, huge_from_bytes=0).vectors.graph) == 200


def test_a_loaded_segment_finds_the_nearest_leaves(tmp_path, record):
    vectors = unit_vectors(200, seed=1)
    loaded = segment_files.load(tmp_path, record)
    assert loaded.rows.labels.tolist() == list(range(200))
    for seed in range(10):
        rows, scores, *_ = nearest(loaded, query_vector(seed), 10)
        exact = vectors @ query_vector(seed)
        assert set(rows.tolist()) == set(np.argsort(exact)[-10:].tolist())
        assert np.allclose(scores, exact[rows], atol=1e-5)
    assert loaded.postings.rows == 200
    assert loaded.postings.document_frequencies(IDS, None).tolist() == [100, 100]
    assert loaded.rows.lengths.tolist() == [2] * 200


def test_a_segment_has_only_the_indexes_that_its_collection_needs(tmp_path):
    """Without vectors, a segment has no HNSW index. Without an analyzer, it has no postings."""
    vectors = unit_vectors(20, seed=1)
    whole = sealed(tmp_path, vectors)
    for parts, options in (
        ([PostingsPart()], {"dimension": 0, "items": 0}),
        ([VectorPart(vector_part.new_index(16, 20))], {"analyzer": ""}),
    ):
        builder = SegmentBuilder(1, parts)
        builder.add(block(vectors))
        files = segment_files.write(tmp_path, 2, builder.write)
        record = replace(whole, segment_id=2, files=files, **options)
        loaded = segment_files.load(tmp_path, record)
        assert (loaded.vectors is None, loaded.postings is None) == (
            not record.dimension,
            not record.analyzer,
        )
        assert len(files) == 2
        assert len(loaded.items) == len(loaded.rows.labels) == 20
        segment_files.remove(tmp_path, 2)


def test_a_search_for_more_leaves_than_there_are_finds_all(tmp_path, record):
    found = nearest(segment_files.load(tmp_path, record), query_vector(0), 1000)
    assert (found.rows.tolist(), found.exact, found.complete) == (list(range(200)), False, True)


def test_the_memory_of_a_segment_is_that_of_its_postings_arrays_and_graph(tmp_path, record):
    """In its file, a vector takes 8 bytes of memory for its checksum instead of 64."""
    loaded = segment_files.load(tmp_path, record)
    arrays = loaded.rows.size_bytes + loaded.items.nbytes
    others = record.files["postings.bin"].size_bytes + arrays
    assert loaded.size_bytes == others + loaded.vectors.size_bytes
    stored = segment_files.load(tmp_path, record, vector_source=no_vectors)
    assert stored.size_bytes == loaded.size_bytes - 200 * (64 - 8)
    without = segment_files.load(tmp_path, record, with_graph=False)
    assert without.size_bytes == others


def test_ef_grows_with_the_count_of_vectors():
    assert segment_files.search_ef(384, 1_000_000) == 250
    assert segment_files.search_ef(64, 1_000_000) == 1172


def test_ef_is_larger_for_vectors_of_few_dimensions(tmp_path, record, monkeypatch):
    """HNSW finds fewer of the nearest short vectors, but comparing short vectors is faster."""
    assert segment_files.search_ef(record.dimension, record.items) == 300
    assert segment_files.search_ef(95, 1 << 16) == 300
    assert segment_files.search_ef(96, 1 << 16) == 64
    used_ef = []
    monkeypatch.setattr(segment_files, "SegmentVectors", lambda *values: used_ef.append(values[-1]))
    segment_files.load(tmp_path, record)
    assert used_ef == [300]


def test_the_record_has_the_sizes_of_the_written_files(tmp_path, record):
    assert set(record.files) == set(FILES)
    for name, file in record.files.items():
        assert path_of(tmp_path, record, name).stat().st_size == file.size_bytes
    assert list(tmp_path.iterdir()) == [segment_files.path_of(tmp_path, 1)]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(tmp_path, record, name):
    path_of(tmp_path, record, name).unlink()
    with pytest.raises(segment_files.DamagedSegment, match=rf"{name} cannot be read: No such file"):
        segment_files.load(tmp_path, record)


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_named(tmp_path, record, name):
    path = path_of(tmp_path, record, name)
    size = record.files[name].size_bytes
    os.truncate(path, size - 1)
    with pytest.raises(
        segment_files.DamagedSegment,
        match=rf"{name} has {size - 1} bytes, but the manifest says {size}",
    ):
        segment_files.load(tmp_path, record)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("position", [0.0, 0.5, 0.999])
def test_a_file_with_a_flipped_bit_is_named(tmp_path, record, name, position):
    path = path_of(tmp_path, record, name)
    content = bytearray(path.read_bytes())
    content[int(len(content) * position)] ^= 1
    path.write_bytes(content)
    with pytest.raises(segment_files.DamagedSegment, match=rf"{name} does not have the checksum"):
        segment_files.load(tmp_path, record)


def test_vectors_of_another_dimension_are_refused(tmp_path, record):
    with pytest.raises(
        segment_files.DamagedSegment, match="vectors of dimension 16, but the manifest says 8"
    ):
        segment_files.load(tmp_path, replace(record, dimension=8))


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [({"rows": 199}, "has 200 leaves"), ({"items": 201}, "has 200 vectors")],
)
def test_a_count_that_differs_from_the_manifest_is_refused(tmp_path, record, wrong, problem):
    with pytest.raises(segment_files.DamagedSegment, match=problem):
        segment_files.load(tmp_path, replace(record, **wrong))


def test_postings_of_other_leaves_are_refused(tmp_path, record):
    other = sealed(tmp_path, unit_vectors(20, seed=2), 2)
    path = path_of(tmp_path, record, "postings.bin")
    path.write_bytes(path_of(tmp_path, other, "postings.bin").read_bytes())
    files = {**record.files, "postings.bin": other.files["postings.bin"]}
    with pytest.raises(segment_files.DamagedSegment, match="has 20 leaves, but the manifest says"):
        segment_files.load(tmp_path, replace(record, files=files))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [b"", b"no index", b"x" * 1000, b"PK\3\4" * 100])
def test_a_file_in_a_wrong_format_is_refused_even_if_its_checksum_is_right(
    tmp_path, record, name, content
):
    path = path_of(tmp_path, record, name)
    path.write_bytes(content)
    files = {**record.files, name: segment_files.sync_file(path)}
    with pytest.raises(segment_files.DamagedSegment, match=r"cannot be read|has vectors of"):
        segment_files.load(tmp_path, replace(record, files=files))


@pytest.mark.parametrize(
    ("owner", "name"),
    [(np, "savez"), (os, "fsync"), (Path, "rename"), (durable_files, "sync")],
)
def test_a_write_that_fails_leaves_nothing_behind(tmp_path, monkeypatch, owner, name):
    def no_space(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owner, name, no_space)
    with pytest.raises(OSError, match="No space left"):
        sealed(tmp_path, unit_vectors(20, seed=2))
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_after_the_rename_leaves_nothing_behind(tmp_path, monkeypatch):
    sync = durable_files.sync

    def no_space(path: Path) -> None:
        sync(path)
        if path == tmp_path:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable_files, "sync", no_space)
    with pytest.raises(OSError, match="No space left"):
        sealed(tmp_path, unit_vectors(20, seed=2))
    assert list(tmp_path.iterdir()) == []


def test_an_index_that_hnswlib_could_not_write_completely_is_noticed(tmp_path, monkeypatch):
    """On a full disk, `save_index` of hnswlib raises no error."""
    whole = hnswlib.Index.save_index

    def save_a_part(index: hnswlib.Index, path: str) -> None:
        whole(index, path)
        os.truncate(path, 100)

    monkeypatch.setattr(hnswlib.Index, "save_index", save_a_part)
    with pytest.raises(OSError, match="was not written completely; the disk may be full"):
        sealed(tmp_path, unit_vectors(20, seed=2))
    assert list(tmp_path.iterdir()) == []


def test_the_unfinished_folder_of_an_earlier_write_is_replaced(tmp_path):
    (tmp_path / "000000000001.tmp").mkdir()
    (tmp_path / "000000000001.tmp" / "index.hnsw").write_bytes(b"half")
    record = sealed(tmp_path, unit_vectors(20, seed=2))
    assert segment_files.load(tmp_path, record).record == record
    assert list(tmp_path.iterdir()) == [segment_files.path_of(tmp_path, 1)]


def test_a_loaded_segment_outlives_its_files(tmp_path, record):
    loaded = segment_files.load(tmp_path, record)
    segment_files.remove(tmp_path, record.segment_id)
    assert list(tmp_path.iterdir()) == []
    assert len(nearest(loaded, query_vector(1), 5).rows) == 5


def descriptors_of(path: Path) -> list[int]:
    """Returns the descriptors with which this process has a file open."""
    numbers = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if descriptor.readlink() == path:
                numbers.append(int(descriptor.name))
    return numbers


def no_vectors(*_: object) -> np.ndarray:
    """A source of vectors that must not be called."""
    raise AssertionError


def test_vectors_that_stay_in_the_file_are_found_too(tmp_path, record):
    """The file may even be removed, because it stays open."""
    loaded = segment_files.load(tmp_path, record)
    stored = segment_files.load(tmp_path, record, vector_source=no_vectors)
    segment_files.remove(tmp_path, record.segment_id)
    for seed in range(5):
        found = nearest(stored, query_vector(seed), 10)
        right = nearest(loaded, query_vector(seed), 10)
        assert [part.tobytes() for part in found[:2]] == [part.tobytes() for part in right[:2]]


@pytest.mark.parametrize("in_file", [True, False])
def test_vectors_are_read_into_memory_if_the_process_has_many_open_files(
    tmp_path, record, in_file, monkeypatch
):
    """Half of the descriptors remain for connections and other files."""
    path = path_of(tmp_path, record, "index.hnsw")

    def limits(_: int) -> tuple[int, int]:
        (descriptor,) = descriptors_of(path)
        limit = 2 * descriptor + (2 if in_file else 0)
        return limit, limit

    monkeypatch.setattr(segment_files.resource, "getrlimit", limits)
    loaded = segment_files.load(tmp_path, record, vector_source=no_vectors)
    assert len(descriptors_of(path)) == in_file
    assert len(nearest(loaded, query_vector(1), 10).rows) == 10


def test_a_check_of_a_segment_needs_no_memory_for_vectors(tmp_path, record):
    loaded = segment_files.load(tmp_path, record, vector_source=segment_files.no_other_source)
    os.truncate(path_of(tmp_path, record, "index.hnsw"), 0)
    with pytest.raises(segment_files.DamagedSegment, match=r"index\.hnsw: .* lies beyond the end"):
        nearest(loaded, query_vector(1), 10)


def test_items_whose_vectors_cannot_be_read_are_requested_with_their_segment(tmp_path, record):
    vectors, calls = unit_vectors(200, seed=1), []

    def source(*arguments):
        calls.append(arguments)
        return vectors[arguments[2]]

    loaded = segment_files.load(tmp_path, record, vector_source=source)
    before = nearest(segment_files.load(tmp_path, record), query_vector(1), 10)
    os.truncate(path_of(tmp_path, record, "index.hnsw"), 0)
    after = nearest(loaded, query_vector(1), 10)
    assert [part.tobytes() for part in after[:2]] == [part.tobytes() for part in before[:2]]
    ((called_record, rows, items, problem),) = calls
    assert called_record == record
    assert rows is loaded.rows
    assert set(after.rows.tolist()) <= set(items.tolist())
    assert "index.hnsw: " in problem
    assert "lies beyond the end of the file" in problem


@pytest.mark.parametrize("change", ["truncate", "overwrite"])
def test_changes_to_its_files_do_not_affect_a_loaded_segment(tmp_path, record, change):
    """If the files were mapped, a search would be killed by SIGBUS or follow wrong links."""
    loaded = segment_files.load(tmp_path, record)
    before = nearest(loaded, query_vector(1), 10)
    for name, file in record.files.items():
        path = path_of(tmp_path, record, name)
        os.truncate(path, 0)
        if change == "overwrite":
            path.write_bytes(b"\xff" * file.size_bytes)
    after = nearest(loaded, query_vector(1), 10)
    assert [after.rows.tolist(), after.scores.tolist()] == [
        before.rows.tolist(),
        before.scores.tolist(),
    ]
    assert loaded.postings.document_frequencies(IDS, None).tolist() == [100, 100]


def test_hnswlib_reads_only_a_verified_copy_of_the_index(tmp_path, record):
    assert vector_part.load_index(tmp_path, record, 200).get_current_count() == 200
    path = path_of(tmp_path, record, "index.hnsw")
    path.write_bytes(b"\xff" * path.stat().st_size)
    with pytest.raises(segment_files.DamagedSegment, match="checksum"):
        vector_part.load_index(tmp_path, record, 200)
    assert [each.name for each in tmp_path.iterdir()] == [path.parent.name]


@pytest.mark.parametrize(("heads", "members"), [(200, 0), (0, 200), (199, 3), (1, 1)])
def test_rows_that_do_not_match_the_index_are_damage(tmp_path, record, heads, members):
    """A search would read outside of its arrays if the numbers were not checked."""
    path = path_of(tmp_path, record, "rows.npz")
    with np.load(path) as stored:
        arrays = dict(stored)
    wrong = {
        "heads": np.repeat(np.array([0, heads], np.uint32), [200, 1]),
        "members": np.full(200, members, np.uint32),
    }
    np.savez(path, **arrays | wrong)
    path.chmod(0o600)
    files = {**record.files, "rows.npz": segment_files.sync_file(path)}
    with pytest.raises(segment_files.DamagedSegment, match="does not match index"):
        segment_files.load(tmp_path, replace(record, files=files))


# Tests of leaves with exactly the same vector.


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_each_distinct_vector_is_indexed_once_and_stands_for_all_its_rows(kinds):
    vectors = unit_vectors(6, seed=3)[kinds]
    index = vector_part.new_index(vectors.shape[1], len(kinds))
    builder = SegmentBuilder(1, [VectorPart(index)])
    builder.add(block(vectors))
    with TemporaryDirectory() as folder:
        arrays = builder.write(Path(folder))
    digests = arrays.pop("digests")
    rows = segment_files.Rows(**arrays, lengths=np.empty(0, np.uint32))
    assert index.get_current_count() == len(digests) == len(set(kinds))
    items = rows.items()
    assert (np.asarray(index.get_items(items)) == vectors).all()
    if len(digests) == len(kinds):
        assert len(rows.heads) == len(rows.members) == 0
        return
    for item in range(len(digests)):
        members = rows.members[rows.heads[item] : rows.heads[item + 1]]
        assert members.tolist() == np.flatnonzero(items == item).tolist()


def test_thousands_of_copies_of_one_vector_do_not_hide_other_vectors(tmp_path):
    """If each copy were indexed, 2,000 copies would reduce the recall to a few per cent."""
    copies, others = 2000, 4000
    vectors = unit_vectors(1 + others, seed=4)
    vectors = np.concatenate([vectors[1:], np.repeat(vectors[:1], copies, axis=0)])
    order = np.random.default_rng(0).permutation(len(vectors))
    vectors = vectors[order]
    copied = np.flatnonzero(order >= others)
    record = sealed(tmp_path, vectors)
    assert (record.rows, record.items) == (copies + others, others + 1)
    loaded = segment_files.load(tmp_path, record)

    recalls = []
    for row in np.flatnonzero(order < others)[:100]:
        rows, scores, *_ = nearest(loaded, vectors[row], 10)
        exact = vectors @ vectors[row]
        assert row in rows
        assert np.allclose(scores, exact[rows], atol=1e-5)
        best = set(np.argsort(-exact)[:10].tolist()) - set(copied.tolist())
        recalls.append(len(best & set(rows.tolist())) / len(best))
    assert np.mean(recalls) >= 0.99

    copy = vectors[copied[0]]
    rows, scores, *_ = nearest(loaded, copy, copies)
    assert set(copied.tolist()) <= set(rows.tolist())
    assert np.allclose(scores[np.isin(rows, copied)], copy @ copy, atol=1e-5)
