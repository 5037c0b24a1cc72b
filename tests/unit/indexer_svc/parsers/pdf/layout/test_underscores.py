"""Short lines on the baseline that stand for an underscore are read as one."""

import pytest

from indexer_svc.parsers.pdf.layout.lines import line_text, rows_of
from indexer_svc.parsers.pdf.layout.underscores import with_underscores
from indexer_svc.parsers.pdf.page_content import RuledLine
from tests.support.documents.page_contents import run, words


def read(runs, rules):
    return [line_text(row.words) for row in rows_of(with_underscores(words(runs), rules))]


def rule(left, right, y=100.0):
    return RuledLine(left, y, right, y)


def test_a_line_between_two_words_is_an_underscore():
    # `max` ends at 65, and `size` begins at 69.
    runs = [run("the max", 45, 100), run("size of it", 84, 100)]
    assert read(runs, [rule(80.6, 83.8)]) == ["the max_size of it"]


def test_underscores_at_both_ends_of_a_word_and_next_to_each_other():
    runs = [run("the", 30, 100), run("init", 60, 100)]
    rules = [rule(52.6, 55.6), rule(56.2, 59.4), rule(80.6, 84.0)]
    assert read(runs, rules) == ["the __init_"]


@pytest.mark.parametrize(
    "drawn",
    [
        [rule(80.6, 83.8, y=94.0)],  # In the middle of the letters, as a minus sign.
        [rule(80.6, 83.8, y=104.0)],  # Below the letters, as under a word.
        [rule(72.0, 73.0)],  # A dot.
        [rule(50.0, 58.0)],  # A blank to be filled in.
        [RuledLine(80.6, 92.0, 80.6, 100.0), rule(80.6, 83.8)],  # The side of a box.
    ],
)
def test_other_lines_are_no_underscores(drawn):
    runs = [run("the max", 45, 100), run("size of it", 84, 100)]
    assert read(runs, drawn) == ["the max size of it"]
