"""Numbers of lists are written with digits, letters or Roman numerals."""

import pytest

from indexer_svc.parsers.numerals import numeral


@pytest.mark.parametrize(
    ("number", "kind", "written"),
    [
        (3, "1", "3"),
        (1, "a", "a"),
        (26, "a", "z"),
        (27, "a", "aa"),
        (702, "A", "ZZ"),
        (703, "a", "aaa"),
        (0, "a", "0"),
        (-2, "A", "-2"),
        (4, "i", "iv"),
        (1994, "I", "MCMXCIV"),
        (3999, "i", "mmmcmxcix"),
        (4000, "i", "4000"),
        (0, "I", "0"),
        (10**9, "a", "1000000000"),
        (5, "disc", "5"),
    ],
)
def test_a_numeral_of_each_kind(number, kind, written):
    assert numeral(number, kind) == written
