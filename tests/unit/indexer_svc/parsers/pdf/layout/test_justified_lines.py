"""Equal spaces between words are those of justified text."""

import pytest

from indexer_svc.parsers.pdf.layout.justified_lines import even_space
from tests.support.documents.page_contents import BOLD, FIXED, REGULAR, justified, run, words


@pytest.mark.parametrize("right", [120, 150, 200, 300])
def test_the_spaces_of_a_justified_line_are_equal(right):
    space = (right - 50 - 5 * 12) / 3
    assert even_space(words(justified(["one two four xy"], 50, right, 100))) == pytest.approx(space)


def test_the_gaps_between_cells_are_not_equal():
    cells = [run("Pump", 50, 100), run("steel", 100, 100), run("rotating", 150, 100)]
    assert even_space(words(cells)) == 0


@pytest.mark.parametrize("text", ["one", "one two"])
def test_one_space_is_not_enough(text):
    assert even_space(words(justified([text], 50, 200, 100))) == 0


def test_numbers_are_no_text():
    assert even_space(words(justified(["10 20 30"], 50, 200, 100))) == 0


def test_names_in_a_font_of_code_are_no_text():
    names = [
        run(name, x, 100, font=FIXED) for x, name in ((50, "p12c"), (90, "p14c"), (130, "p16c"))
    ]
    assert even_space(words(names)) == 0


def test_the_space_after_a_full_stop_may_be_wider():
    parts = [run("It", 50, 100), run("ends.", 72, 100), run("The", 115, 100), run("end", 142, 100)]
    assert even_space(words(parts)) == 12


def test_the_spaces_beside_another_font_may_be_wider():
    parts = [run("It", 50, 100), run("is", 72, 100), run("bold", 97, 100, font=BOLD)]
    assert even_space(words([*parts, run("now", 132, 100), run("and", 159, 100)])) == 12


@pytest.mark.parametrize("font", [BOLD, REGULAR])
@pytest.mark.parametrize("gutter", [20, 25, 45])
@pytest.mark.parametrize("right", [130, 170, 230])
def test_the_space_between_two_columns_is_no_space_of_a_line(right, gutter, font):
    left = justified(["the last help file"], 50, right, 100)
    both = [*left, run("References", right + gutter, 100, font=font)]
    assert even_space(words(both)) == 0
