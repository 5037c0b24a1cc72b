"""Tests of values with checksums: every flipped bit and every wrong seed is noticed."""

import numpy as np
import pytest

from hrag.engine.embedded.store.checksums import (
    BLOCK_BYTES,
    Blocks,
    are_verified,
    block_checksums_of,
    checksum_of,
    verified,
)
from hrag.engine.embedded.store.metadata_terms import (
    ordinals_of_entries,
    term_entry,
    term_seed,
)

SIZES = [0, 1, 7, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 5]


class Damaged(Exception):
    pass


def with_checksum(data, seed):
    return data + checksum_of(data, seed)


def with_block_checksums(data, seed):
    return data + block_checksums_of(data, seed)


def raise_damaged():
    raise Damaged


@pytest.mark.parametrize("size", SIZES)
def test_a_value_with_checksums_is_read_as_it_was_stored(size):
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    assert verified(memoryview(with_checksum(data, 5)), 5) == data
    assert (
        Blocks(memoryview(with_block_checksums(data, 5)), lambda: 5, raise_damaged).check_all()
        == data
    )


@pytest.mark.parametrize("size", [1, 7, BLOCK_BYTES + 1])
def test_every_flipped_bit_and_a_wrong_seed_are_noticed(size):
    data = bytes(size)
    for make, is_sound in (
        (with_checksum, lambda value, seed: verified(value, seed) is not None),
        (with_block_checksums, are_verified),
    ):
        value = bytearray(make(data, 2**64 - 1))
        assert is_sound(memoryview(value), 2**64 - 1)
        assert not is_sound(memoryview(value), 4)
        assert not is_sound(memoryview(value)[:-1], 2**64 - 1)
        for at in range(0, len(value), 1 + len(value) // 100):
            value[at] ^= 1 << at % 8
            assert not is_sound(memoryview(value), 2**64 - 1)
            value[at] ^= 1 << at % 8


def test_only_the_blocks_that_are_read_are_checked():
    value = bytearray(with_block_checksums(bytes(3 * BLOCK_BYTES), 1))
    value[BLOCK_BYTES + 9] ^= 1
    checked = bytearray()
    blocks = Blocks(memoryview(value), lambda: 1, raise_damaged, checked)
    blocks.check(0, BLOCK_BYTES)
    blocks.check(2 * BLOCK_BYTES, 5 * BLOCK_BYTES)
    for span in ((0, BLOCK_BYTES + 1), (BLOCK_BYTES, BLOCK_BYTES + 1)):
        with pytest.raises(Damaged):
            blocks.check(*span)
    assert list(checked) == [1, 0, 1]


def test_blocks_that_were_checked_are_not_checked_again():
    value = with_block_checksums(bytes(3 * BLOCK_BYTES), 1)
    checked = bytearray()
    assert Blocks(memoryview(value), lambda: 1, raise_damaged, checked).check_all() == value[:-24]
    damaged = memoryview(bytes(len(value)))
    assert Blocks(damaged, lambda: 1, raise_damaged, checked).check_all() == damaged[:-24]


@pytest.mark.parametrize("ordinal", [1, 2, 77, (1 << 44) - 1])
def test_every_flipped_bit_of_a_terms_entry_is_noticed(ordinal):
    entry = int.from_bytes(term_entry(b"term", ordinal), "big")
    seed = np.uint64(term_seed(b"term"))
    flipped = np.array([entry, *(entry ^ 1 << bit for bit in range(64))], np.uint64)
    ordinals, damaged = ordinals_of_entries(flipped, seed)
    assert ordinals[0] == ordinal
    assert damaged.tolist() == [False] + [True] * 64
