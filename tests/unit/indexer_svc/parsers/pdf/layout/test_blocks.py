"""Lines become paragraphs, items and code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer_svc.parsers.pdf.layout.blocks import blocks_of
from indexer_svc.parsers.pdf.layout.paragraphs import NO_WORDS
from indexer_svc.parsers.pdf.page_content import Font
from tests.support.documents.page_contents import BOLD, FIXED, REGULAR, lines, paragraph, run

FULL = "words that fill the whole line from its left to its right end"


def blocks(runs):
    return blocks_of(lines(runs), NO_WORDS, fixed_is_code=True)


def texts(runs):
    return [block.text for block in blocks(runs)]


def test_lines_of_a_paragraph_are_joined():
    assert texts(paragraph([FULL, FULL, "the end."], 50, 100)) == [f"{FULL} {FULL} the end."]


def test_space_between_lines_divides_paragraphs():
    runs = paragraph([FULL, FULL], 50, 100) + paragraph([FULL, FULL], 50, 136)
    assert texts(runs) == [f"{FULL} {FULL}"] * 2


def test_an_indented_line_begins_a_paragraph():
    runs = paragraph([FULL, FULL, FULL], 50, 100)
    runs += [run("Indented words of a new paragraph that are long enough", 65, 136)]
    assert len(texts(runs)) == 2


def test_a_sentence_that_ends_early_ends_its_paragraph():
    after = "Another " + FULL[8:]
    assert texts(paragraph([FULL, "It ends.", after], 50, 100)) == [f"{FULL} It ends.", after]


def test_short_lines_stay_lines():
    runs = paragraph([FULL, "Ada Sample", "12 Long Street", "Old Town"], 50, 100)
    assert texts(runs) == [f"{FULL} Ada Sample\n12 Long Street\nOld Town"]


def test_bullets_begin_items():
    runs = paragraph(["\u2022 first item", "\u2022 second item", "  that goes on"], 50, 100)
    found = blocks(runs)
    assert [(block.marker, block.text) for block in found] == [
        ("-", "first item"),
        ("-", "second item that goes on"),
    ]


def test_numbers_begin_items():
    assert texts(paragraph(["1. first item", "2. second item"], 50, 100)) == [
        "1. first item",
        "2. second item",
    ]


def test_a_larger_line_is_a_block_of_its_own():
    runs = [run("Title", 50, 85, size=14), *paragraph([FULL, FULL], 50, 100)]
    assert texts(runs) == ["Title", f"{FULL} {FULL}"]


def test_a_bold_line_is_a_block_of_its_own():
    runs = [run("Title", 50, 88, font=BOLD), *paragraph([FULL, FULL], 50, 100)]
    assert texts(runs) == ["Title", f"{FULL} {FULL}"]


@pytest.mark.parametrize("end", ["a broken w-", "a speed in m/"])
def test_the_rest_of_a_word_continues_a_line_whatever_its_style(end):
    line = f"{FULL[: -len(end)]}{end}"
    small = [run(line, 50, 100), run("s. Use ", 50, 112)]
    small.append(run("the_long_name=12", 85, 112, size=8, font=FIXED))
    assert len(texts(small)) == 1


@pytest.mark.parametrize("after", ["Small words", "small words"])
def test_a_line_of_small_words_continues_no_broken_word(after):
    line = f"{FULL[:-10]} a broken-"
    assert texts([run(line, 50, 100), run(after, 50, 112, size=8)]) == [line, after]


def test_an_address_in_the_font_of_code_that_is_broken_at_a_hyphen():
    runs = [
        run("//example.org/features/every-", 50, 100, font=FIXED),
        run("thing", 50, 112, font=FIXED),
    ]
    runs.append(run("at that place.", 85, 112))
    [block] = blocks(runs)
    assert not block.is_code


def test_code_keeps_its_lines_and_indentation():
    runs = [run("if x:", 50, 100, font=FIXED), run("y = 1", 70, 112, font=FIXED)]
    [block] = blocks(runs)
    assert block.is_code
    assert block.text == "if x:\n    y = 1"


def test_code_keeps_its_empty_lines_and_the_spaces_inside_its_lines():
    runs = [run("name", 50, 100, font=FIXED), run("value", 100, 100, font=FIXED)]
    runs += [run("x", 50, 112, font=FIXED), run("1", 120, 112, font=FIXED)]
    runs += [run("end", 50, 136, font=FIXED)]
    [block] = blocks(runs)
    assert block.text == "name      value\nx             1\n\nend"


def test_bold_words_do_not_divide_code():
    bold = Font("Mono-Bold", is_bold=True, is_fixed=True)
    [block] = blocks([run("if x:", 50, 100, font=bold), run("y = 1", 70, 112, font=FIXED)])
    assert block.text == "if x:\n    y = 1"


@pytest.mark.parametrize(
    ("text", "font", "is_code"),
    [
        ("# adduser fish", FIXED, True),
        ("read(name)", FIXED, True),
        ("showall", FIXED, False),
        ("example.org/a/long/path", FIXED, False),
        ("read (name)", Font("Mono-Bold", is_bold=True, is_fixed=True), False),
        ("read (name)", REGULAR, False),
    ],
)
def test_a_single_line_of_code(text, font, is_code):
    after = paragraph([FULL, FULL, FULL], 50, 170)
    block, _ = blocks([run(text, 70, 136, font=font), *after])
    assert (block.is_code, block.text) == (is_code, text)


@pytest.mark.parametrize("font", [BOLD, FIXED])
def test_the_last_words_of_a_sentence_may_have_another_style(font):
    runs = [*paragraph([FULL, FULL], 50, 100), run("(see below)", 50, 124, font=font)]
    assert texts(runs) == [f"{FULL} {FULL} (see below)"]


@pytest.mark.parametrize(
    ("end", "size", "is_part"),
    [
        (FULL, 8.5, True),
        (FULL, 7, False),  # It is too small for code in a sentence.
        (FULL[:40], 8.5, False),  # The code would have fitted on the line.
        (f"{FULL[:-1]}.", 8.5, False),
    ],
)
def test_a_sentence_goes_on_with_smaller_code(end, size, is_part):
    runs = [*paragraph([FULL, end], 50, 100), run("the_name = 1", 50, 124, size=size, font=FIXED)]
    assert len(texts(runs)) == (1 if is_part else 2)


def test_a_line_of_smaller_code_goes_on_with_the_sentence():
    text = "the_long_name_of_a_command --its-first-option --its-second-option"
    runs = [run(text, 50, 100, size=9, font=FIXED), *paragraph(["has two options"], 50, 112)]
    [block] = blocks(runs)
    assert not block.is_code
    assert block.styled.size == 10


def test_a_bold_title_below_a_full_line_is_no_part_of_it():
    runs = [*paragraph([FULL, FULL], 50, 100), run("The next title", 50, 124, font=BOLD)]
    assert texts(runs) == [f"{FULL} {FULL}", "The next title"]


@pytest.mark.parametrize("mark", ["-", "\u2014", "*"])
def test_a_dash_at_the_start_of_a_line_of_a_sentence_is_no_bullet(mark):
    runs = paragraph([FULL, f"{mark} {FULL[:-4]}", "and the end."], 50, 100)
    assert texts(runs) == [f"{FULL} {mark} {FULL[:-4]} and the end."]


def test_an_asterisk_that_begins_an_item_stays():
    [block] = blocks(paragraph(["* stands for all of them"], 50, 100))
    assert (block.marker, block.text) == ("*", "stands for all of them")


def test_asterisks_alone_are_no_item():
    assert texts([run("* * *", 50, 100)]) == ["* * *"]


def test_a_line_that_is_too_long_does_not_break_the_others():
    texts_of_lines = [FULL, "Full " + FULL[5:], "Full " + FULL[5:], FULL, FULL + "-and-more", FULL]
    assert "\n" not in texts(paragraph(texts_of_lines, 50, 100))[0]


@given(st.lists(st.text("abc .:-", min_size=1, max_size=20), max_size=12), st.integers(9, 30))
def test_no_word_is_lost(parts, pitch):
    runs = paragraph([part for part in parts if part.strip()], 50, 100, pitch=pitch)
    read = "".join(block.text + block.marker for block in blocks(runs))
    letters = "".join(item.text for item in runs)
    assert [one for one in read if one in "abc"] == [one for one in letters if one in "abc"]
