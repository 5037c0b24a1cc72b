"""Tests of the content of a document: it is cut into values that fill pages, and read again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.store import content, schema
from hrag.engine.embedded.store.content import Content, ContentPart, DamagedContent
from hrag.engine.embedded.store.queries import address_of
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import DataLoss
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.engines.damage import entries_of, flip_part, overwrite, part_of

PAGE = 4096
OWNER = schema.address(schema.u64(1), 2, 3)
LARGEST_NODE = (PAGE - 16) // 2 - 10

parts = st.lists(
    st.tuples(st.binary(max_size=300), st.integers(1, 400), st.binary(max_size=24)).map(
        lambda drawn: (drawn[0] * drawn[1], drawn[2])
    ),
    min_size=3,
    max_size=3,
)


@given(parts)
def test_each_part_is_read_as_it_was_stored(drawn):
    whole = content.joined(drawn, OWNER)
    values = content.cut(whole)
    assert b"".join(values) == whole
    assert len(whole) == content.size_bytes([len(data) + len(sums) for data, sums in drawn])
    found = Content(OWNER, memoryview(bytes(values[0])))
    found.data = memoryview(whole)
    for number, (data, sums) in enumerate(drawn):
        assert found.part(number) == data + sums
    needed = found.needed_bytes(1)
    assert needed == found.needed_bytes(0) <= found.needed_bytes(2) == len(whole)
    found.data = memoryview(whole)[:needed]
    assert found.part(0) == b"".join(drawn[0])
    assert found.part(1) == b"".join(drawn[1])


@given(parts)
def test_vectors_begin_at_an_offset_that_is_a_multiple_of_four(drawn):
    whole = content.joined(drawn, OWNER)
    assert (len(whole) - len(b"".join(drawn[2]))) % 4 == 0


def test_values_fill_whole_pages_or_share_them():
    for size in range(16, content.LONG_BYTES + 1):
        lengths = content.value_lengths(size)
        assert sum(lengths) == size
        whole = [length for length in lengths if length > LARGEST_NODE]
        pieces = lengths[len(whole) :]
        assert whole == lengths[: len(whole)]
        assert [(16 + length) % PAGE for length in whole] == [0] * (size + 16 >= PAGE)
        assert sum(pieces) < PAGE
        assert min(pieces, default=1) > 0
        assert max(pieces, default=0) <= content.PIECE_BYTES
        assert max(pieces, default=0) - min(pieces, default=0) <= 1


@given(st.integers(content.LONG_BYTES + 1, 3 * content.LONG_BYTES))
def test_a_long_content_is_one_value(size):
    assert content.value_lengths(size) == [size]


@given(st.integers(0, 127))
def test_a_flipped_length_or_another_owner_is_noticed(bit):
    whole = bytearray(content.joined([(b"tree", b""), (b"", b""), (b"vectors", b"")], OWNER))
    whole[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedContent):
        Content(OWNER, memoryview(bytes(whole)))
    whole[bit // 8] ^= 1 << bit % 8
    Content(OWNER, memoryview(bytes(whole)))
    with pytest.raises(DamagedContent):
        Content(schema.address(schema.u64(1), 2, 4), memoryview(bytes(whole)))


def test_a_part_whose_end_is_missing_is_noticed():
    whole = content.joined([(b"tree", b""), (b"text", b""), (b"vectors", b"")], OWNER)
    found = Content(OWNER, memoryview(whole)[:-1])
    assert found.part(1) == b"text"
    with pytest.raises(DamagedContent):
        found.part(2)


@pytest.mark.parametrize("count", [1, 5, 12, 25, 60, 700])
def test_parts_are_read_in_any_order_and_after_each_change(store, count):
    """The short contents consist of several values, and the longest content is a single value."""
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", collection_settings(dimension=64))
    opened, settings = writer.open("t", "c"), collection_settings(dimension=64)
    documents = [prepared("d", sentences(count, seed), settings, seed) for seed in range(2)]
    for document in documents:
        writer.put(opened, document)
    document = documents[-1]
    expected = {
        ContentPart.TREE: document.tree.to_bytes(),
        ContentPart.TEXT: document.parsed.text.encode(),
        ContentPart.VECTORS: document.vectors.tobytes(),
    }
    with store.read() as txn:
        address = address_of(txn, 1, 2)
        for parts in (
            [ContentPart.VECTORS, ContentPart.TREE, ContentPart.TEXT],
            [ContentPart.TEXT, ContentPart.VECTORS, ContentPart.TREE],
        ):
            for part in parts:
                assert txn.contents.get(address, part) == expected[part]
                assert txn.contents.has(address, part)
            assert txn.contents.tree_again(address) == expected[ContentPart.TREE]
        assert not txn.contents.has(address[::-1], ContentPart.TEXT)
    with store.write() as txn:
        assert txn.contents.vectors(address) == expected[ContentPart.VECTORS]
        txn.contents.delete(address[: schema.SLOT_BYTES])
        assert txn.contents.get(address, ContentPart.VECTORS) is None
        txn.contents.put(address, *expected.values())
        assert txn.contents.tree(address) == expected[ContentPart.TREE]


@pytest.mark.parametrize("name", content.PARTS)
@pytest.mark.parametrize("count", [1, 60])
def test_a_flipped_bit_in_any_part_raises_data_loss(store, name, count):
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", collection_settings(dimension=64))
    document = prepared("d", sentences(count), collection_settings(dimension=64))
    writer.put(writer.open("t", "c"), document)
    damaged = part_of(name)
    others = set(ContentPart) - {damaged}
    for at in (0, -1):
        with store.write() as txn:
            flip_part(txn, name, at)
        with store.read() as txn:
            address = address_of(txn, 1, 1)
            assert all(txn.contents.get(address, part) for part in others)
            assert txn.contents.get_sound(address, damaged) is None
            with pytest.raises(DataLoss, match=f"document 'd' of .* its entry in '{name}'"):
                txn.contents.get(address, damaged)
        with store.write() as txn:
            flip_part(txn, name, at)


def test_damaged_lengths_raise_data_loss_for_every_part(store):
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", collection_settings())
    writer.put(writer.open("t", "c"), prepared("d", sentences(30)))
    with store.write() as txn:
        key, value = entries_of(txn, "texts")[0]
        changed = bytearray(value)
        changed[5] ^= 4
        overwrite(txn, "texts", key, bytes(changed))
    with store.read() as txn:
        address = address_of(txn, 1, 1)
        contents = txn.contents
        for part in ContentPart:
            assert contents.has(address, part)
            assert contents.get_sound(address, part) is None
        for read in (
            contents.tree,
            contents.tree_again,
            contents.text,
            contents.text_blocks,
            contents.vectors,
        ):
            with pytest.raises(DataLoss, match="document 'd' of collection 't/c' is damaged"):
                read(address)
    writer.put(writer.open("t", "c"), prepared("d", sentences(30)))


@pytest.mark.parametrize("counts", [(60, 2), (2, 60), (700, 5), (5, 700), (12, 12)])
def test_a_new_version_replaces_all_values_of_the_old_one(store, counts):
    """No value of the old version remains, and the new version uses the same slot."""
    settings = collection_settings(dimension=64)
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", settings)
    opened = writer.open("t", "c")
    for seed, count in enumerate(counts):
        writer.put(opened, prepared("d", sentences(count, seed), settings, seed))
        writer.put(opened, prepared(f"other{seed}", "text", settings))
        with store.read() as txn:
            values = [len(value) for _, value in txn.contents.stored(schema.u64(1))]
            assert values == content.value_lengths(sum(values))
            assert txn.free_slots.size == 0
        assert writer.document_with_text(opened, "d")[1] == sentences(count, seed)
    assert check(store).problems == ()


def test_a_document_that_fills_its_pages_is_one_value(store):
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", collection_settings())
    opened = writer.open("t", "c")
    text = sentences(30)

    def values() -> list[int]:
        writer.put(opened, prepared("d", text))
        with store.read() as txn:
            return [len(value) for _, value in txn.contents.stored(schema.u64(1))]

    while (sum(values()) + 16) % PAGE:
        text += "."
    assert len(values()) == 1
    assert writer.document_with_text(opened, "d")[1] == text
    assert check(store).problems == ()
