"""Keys: fixed width, sorted as their numbers are, listed once."""

import re

from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.embedded import keys
from hrag.ids import MAX_DOCUMENT_ID_BYTES, MAX_NAME_BYTES

u32s = st.integers(0, 2**32 - 1)
u64s = st.integers(0, 2**64 - 1)


@given(u32s, u64s)
def test_numbers_come_back(number, other):
    assert keys.read_u32(keys.u32(number)) == number
    assert keys.read_u64(memoryview(keys.u64(other))) == other
    assert keys.read_in_collection(keys.in_collection(number, other)) == (number, other)


@given(st.lists(st.tuples(u32s, u64s)))
def test_keys_sort_as_their_numbers(pairs):
    assert [keys.in_collection(*pair) for pair in sorted(pairs)] == sorted(
        keys.in_collection(*pair) for pair in pairs
    )


@given(u32s, u64s)
def test_everything_in_a_collection_begins_with_its_number(number, other):
    assert keys.in_collection(number, other).startswith(keys.u32(number))
    assert keys.document_id(number, "d").startswith(keys.u32(number))


def test_names_of_a_tenant_are_a_prefix_no_other_tenant_has():
    assert keys.collection_name("t", "c").startswith(keys.collection_name("t", ""))
    assert not keys.collection_name("tt", "c").startswith(keys.collection_name("t", ""))
    assert keys.collection_name("a", "b-c") != keys.collection_name("a-b", "c")


def test_the_longest_names_fit_in_an_lmdb_key():
    lmdb_key_bytes = 511
    longest = keys.collection_name("t" * MAX_NAME_BYTES, "c" * MAX_NAME_BYTES)
    assert len(longest) <= lmdb_key_bytes
    assert len(keys.document_id(1, "d" * MAX_DOCUMENT_ID_BYTES)) <= lmdb_key_bytes


def test_the_table_lists_every_database_once():
    listed = re.findall(r"^\| ([a-z_]+)\s*\|", keys.__doc__ or "", re.MULTILINE)
    assert listed == ["database", *keys.DATABASES]
    assert len(set(keys.DATABASES)) == len(keys.DATABASES)
