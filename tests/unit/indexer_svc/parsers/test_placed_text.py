"""Pieces of text become one text, in which superscripts and subscripts have signs."""

import pytest

from indexer_svc.parsers.placed_text import Placement, joined_pieces, tidied_pieces

BASE, UP, DOWN = Placement.NORMAL, Placement.SUPERSCRIPT, Placement.SUBSCRIPT


@pytest.mark.parametrize(
    ("pieces", "line"),
    [
        ([("10", BASE), ("6", UP), ("cells", BASE)], "10^6 cells"),
        ([("10", BASE), ("1", UP), ("0", UP), (" cells", BASE)], "10^10 cells"),
        ([("H", BASE), ("2", DOWN), ("O", BASE)], "H2O"),
        ([("log", BASE), ("2", DOWN), ("8", BASE)], "log2 8"),
        ([("x", BASE), ("2", UP), ("y", BASE)], "x^2 y"),
        ([("SO", BASE), ("4", DOWN), ("2−", UP)], "SO4^2−"),
        ([("x", BASE), ("i", DOWN), ("2", UP)], "x_i^2"),
        ([("x", BASE), ("2", UP), ("i", DOWN)], "x^2_i"),
        ([("of ", BASE), ("14", UP), ("C", BASE)], "of ^14C"),
        ([("Warranty", BASE), ("2", UP), ("is", BASE)], "Warranty [2] is"),
        ([("a", BASE), (" ", UP), ("b", BASE)], "a b"),
        ([("1", UP), ("/", BASE), ("2", DOWN), (" mile", BASE)], "1/2 mile"),
        ([("2", BASE), ("1", UP), ("/", BASE), ("2", DOWN)], "2 1/2"),
        ([("  a", BASE), ("\n", BASE), ("b", BASE)], "  a\nb"),
        ([], ""),
    ],
)
def test_what_follows_is_no_part_of_an_exponent(pieces, line):
    assert joined_pieces(pieces) == line


def test_tidied_text_has_single_spaces_and_no_blank_lines():
    pieces = [("  a \u200e ", BASE), ("\n \n", BASE), ("10", BASE), ("6", UP)]
    assert tidied_pieces(pieces) == "a\n10^6"
