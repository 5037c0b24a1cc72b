"""Tests of numbers with their nouns."""

from hrag.text.noun_counts import counted


def test_a_count_of_one_has_a_singular_noun():
    assert (counted(1, "passage"), counted(1200, "passage")) == ("1 passage", "1,200 passages")
    assert (counted(1, "leaf", "leaves"), counted(0, "leaf", "leaves")) == ("1 leaf", "0 leaves")
