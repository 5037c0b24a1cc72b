"""Tests of the keys of LMDB's databases, and of the table that lists the databases.

Numbers in keys have a fixed width, so keys sort in the same order as their numbers.
"""

import re

from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.embedded.store import codecs, schema
from hrag.values.ids import MAX_DOCUMENT_ID_BYTES, MAX_NAME_BYTES

u32s = st.integers(0, 2**32 - 1)
u64s = st.integers(0, 2**64 - 1)


@given(u32s, u64s)
def test_decoded_numbers_equal_the_original(number, other):
    assert schema.read_u32(schema.u32(number)) == number
    assert schema.read_u64(memoryview(schema.u64(other))) == other
    assert schema.read_in_collection(schema.in_collection(number, other)) == (number, other)


@given(st.lists(st.tuples(u32s, u64s)))
def test_keys_sort_like_their_numbers(pairs):
    assert [schema.in_collection(*pair) for pair in sorted(pairs)] == sorted(
        schema.in_collection(*pair) for pair in pairs
    )


@given(u32s, u64s)
def test_every_key_in_a_collection_begins_with_the_collection_id(collection_id, other):
    assert schema.in_collection(collection_id, other).startswith(schema.u32(collection_id))
    assert schema.document_id(collection_id, "d").startswith(schema.u32(collection_id))


def test_the_keys_of_a_tenants_collection_names_have_a_prefix_of_their_own():
    assert schema.collection_name("t", "c").startswith(schema.collection_name("t", ""))
    assert not schema.collection_name("tt", "c").startswith(schema.collection_name("t", ""))
    assert schema.collection_name("a", "b-c") != schema.collection_name("a-b", "c")


def test_the_longest_names_fit_in_an_lmdb_key():
    lmdb_key_bytes = 511
    longest = schema.collection_name("t" * MAX_NAME_BYTES, "c" * MAX_NAME_BYTES)
    assert len(longest) <= lmdb_key_bytes
    assert len(schema.document_id(1, "d" * MAX_DOCUMENT_ID_BYTES)) <= lmdb_key_bytes


def test_the_table_lists_every_database_once():
    listed = re.findall(r"^\| ([a-z_]+)\s*\|", schema.__doc__ or "", re.MULTILINE)
    assert listed == ["database", *schema.DATABASES]
    assert len(set(schema.DATABASES)) == len(schema.DATABASES)


def test_every_database_is_a_field_of_a_transaction(store):
    with store.read() as txn:
        names = {table.name for table in txn.tables()}
        names |= {table.name for table in (txn.terms, txn.free_slots, txn.unsummarised)}
        names |= {txn.deleted_collections.name, schema.CONTENTS}
        assert names == set(schema.DATABASES) == set(txn.databases)
        assert {table.name for table in txn.tables_by_collection()} == set(schema.BY_COLLECTION)


def test_even_damaged_keys_are_encoded_as_they_were():
    damaged = b"t\xff\0c"
    assert codecs.COLLECTION_NAME.pack(codecs.COLLECTION_NAME.unpack(damaged)) == damaged
    assert schema.printable(codecs.TENANT.unpack(b"t\xff")) == "t\ufffd"
