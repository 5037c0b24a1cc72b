"""The content of a document is cut into values that fill pages, and each part comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.store import content, schema
from hrag.engine.embedded.store.content import Content, DamagedContent
from hrag.engine.embedded.store.queries import address_of
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import DataLoss
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.engines.damage import flip_part

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
def test_parts_come_back(drawn):
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
def test_vectors_lie_at_a_multiple_of_four(drawn):
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


def test_a_part_that_is_not_whole_is_noticed():
    whole = content.joined([(b"tree", b""), (b"text", b""), (b"vectors", b"")], OWNER)
    found = Content(OWNER, memoryview(whole)[:-1])
    assert found.part(1) == b"text"
    with pytest.raises(DamagedContent):
        found.part(2)


@pytest.mark.parametrize("count", [1, 5, 12, 25, 60, 700])
def test_parts_are_read_in_any_order_and_after_each_change(store, count):
    """Short contents are of several values, and the longest is of one."""
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", collection_settings(dimension=64))
    opened, settings = writer.open("t", "c"), collection_settings(dimension=64)
    documents = [prepared("d", sentences(count, seed), settings, seed) for seed in range(2)]
    for document in documents:
        writer.put(opened, document)
    document = documents[-1]
    expected = {
        "trees": document.tree.to_bytes(),
        "texts": document.parsed.text.encode(),
        "vectors": document.vectors.tobytes(),
    }
    with store.read() as txn:
        address = address_of(store, txn, 1, 2)
        for names in (["vectors", "trees", "texts"], ["texts", "vectors", "trees"]):
            for name in names:
                assert txn.get(address, store.db[name]) == expected[name]
                assert txn.get_again(address, store.db[name]) == expected[name]
                assert txn.has(address, store.db[name])
        assert not txn.has(address_of(store, txn, 1, 2)[::-1], store.db["texts"])
    with store.write() as txn:
        before = txn.get(address, store.db["vectors"])
        assert before == expected["vectors"]
        txn.delete_content(address[: schema.SLOT_BYTES], store.db["texts"])
        assert txn.get(address, store.db["vectors"]) is None
        parts = [(store.db[name], expected[name]) for name in content.PARTS]
        txn.put_content(address, parts)
        assert txn.get(address, store.db["trees"]) == expected["trees"]


@pytest.mark.parametrize("name", content.PARTS)
@pytest.mark.parametrize("count", [1, 60])
def test_a_flipped_bit_in_any_part_is_data_loss(store, name, count):
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", collection_settings(dimension=64))
    document = prepared("d", sentences(count), collection_settings(dimension=64))
    writer.put(writer.open("t", "c"), document)
    others = set(content.PARTS) - {name}
    for at in (0, -1):
        with store.write() as txn:
            flip_part(store, txn, name, at)
        with store.read() as txn:
            address = address_of(store, txn, 1, 1)
            assert all(txn.get(address, store.db[other]) for other in others)
            assert txn.get_sound(address, store.db[name]) is None
            with pytest.raises(DataLoss, match=f"document 'd' of .* its entry in '{name}'"):
                txn.get(address, store.db[name])
        with store.write() as txn:
            flip_part(store, txn, name, at)


def test_damaged_lengths_are_data_loss_for_every_part(store):
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", collection_settings())
    writer.put(writer.open("t", "c"), prepared("d", sentences(30)))
    texts = store.db["texts"]
    with store.write() as txn:
        key, value = next(txn.entries(texts))
        key, changed = bytes(key), bytearray(value)
        changed[5] ^= 4
        txn.raw.put(key, bytes(changed), db=texts.handle)
    with store.read() as txn:
        address = address_of(store, txn, 1, 1)
        for name in content.PARTS:
            assert txn.has(address, store.db[name])
            assert txn.get_sound(address, store.db[name]) is None
            for read in (txn.get, txn.get_again, txn.get_blocks):
                with pytest.raises(DataLoss, match="document 'd' of collection 't/c' is damaged"):
                    read(address, store.db[name])
    writer.put(writer.open("t", "c"), prepared("d", sentences(30)))


@pytest.mark.parametrize("counts", [(60, 2), (2, 60), (700, 5), (5, 700), (12, 12)])
def test_a_new_version_takes_the_place_of_the_old_one(store, counts):
    """No value of the old one is left, and no slot is free."""
    settings = collection_settings(dimension=64)
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", settings)
    opened = writer.open("t", "c")
    for seed, count in enumerate(counts):
        writer.put(opened, prepared("d", sentences(count, seed), settings, seed))
        writer.put(opened, prepared(f"other{seed}", "text", settings))
        with store.read() as txn:
            values = [len(value) for _, value in txn.entries(store.db["texts"], schema.u64(1))]
            assert values == content.value_lengths(sum(values))
            assert not list(txn.entries(store.db["free_slots"]))
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
            return [len(value) for _, value in txn.entries(store.db["texts"], schema.u64(1))]

    while (sum(values()) + 16) % PAGE:
        text += "."
    assert len(values()) == 1
    assert writer.document_with_text(opened, "d")[1] == text
    assert check(store).problems == ()
