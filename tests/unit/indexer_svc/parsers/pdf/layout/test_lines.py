"""Words with the same baseline make a row, and superscripts keep apart from the words before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.documents.page_contents import FIXED, ITALIC, lines, rows, run


def text(*runs):
    return [line.text for line in lines(runs)]


def test_words_with_nearly_the_same_baseline_are_one_row():
    assert text(run("left", 0, 100), run("right", 200, 101), run("below", 0, 112)) == [
        "left right",
        "below",
    ]


def test_words_are_in_order_whatever_order_they_are_drawn_in():
    assert text(run("world", 30, 50), run("hello", 0, 50)) == ["hello world"]


def test_runs_without_a_gap_are_one_word():
    assert text(run("hel", 0, 50), run("lo", 15, 50)) == ["hello"]


def test_a_narrow_gap_divides_words_of_different_fonts_only():
    assert text(run("the", 0, 50), run("file", 16.2, 50, font=ITALIC)) == ["the file"]
    assert text(run("the", 0, 50), run("file", 16.2, 50)) == ["thefile"]
    assert text(run("f", 0, 50, font=ITALIC), run("(x)", 6.2, 50)) == ["f(x)"]
    assert text(run("arg", 0, 50, font=ITALIC), run("s", 15.5, 50)) == ["args"]


@pytest.mark.parametrize(
    ("base", "script", "expected"),
    [
        ("10", "6", "10^6"),
        ("x", "2", "x^2"),
        ("cm", "2", "cm^2"),
        ("Warranty", "1", "Warranty [1]"),
        ("costs", "*", "costs [*]"),
        ("4", "th", "4th"),
    ],
)
@pytest.mark.parametrize("size", [6, 7, 8.3, 8.9])
def test_superscripts(base, script, size, expected):
    runs = [run(base, 0, 50), run(script, 5 * len(base), 46, size=size)]
    assert text(*runs) == [expected]


def test_a_word_after_a_superscript_stands_apart():
    runs = [run("see", 0, 50), run("2", 15, 46, size=7), run("and", 21, 50)]
    assert text(*runs) == ["see [2] and"]


@pytest.mark.parametrize(("drop", "size"), [(2, 7), (4.4, 8.9)])
def test_a_subscript_joins_its_word(drop, size):
    runs = [run("H", 0, 50), run("2", 5, 50 + drop, size=size), run("O", 5 + size / 2, 50)]
    assert text(*runs) == ["H2O"]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [(("\u2212", "1"), "W^\u22121"), (("1", "/2"), "W^1/2"), (("1", "a"), "W^1 a")],
)
def test_a_superscript_of_several_words(parts, expected):
    scripts = [run(part, 5 + 2 * at, 46, size=4) for at, part in enumerate(parts)]
    assert text(run("W", 0, 50), *scripts) == [expected]


@pytest.mark.parametrize(
    ("y", "expected"),
    [(51.5, ["am2", "bm"]), (53.4, ["am2", "bm"]), (54.8, ["am", "bm^2"]), (58, ["am", "bm^2"])],
)
def test_a_script_between_two_lines_belongs_to_one_of_them(y, expected):
    lines_of = [run("am", 0, 50), run("bm", 0, 62)]
    assert text(*lines_of, run("2", 10, y, size=7)) == expected


def test_a_second_superscript_belongs_to_its_own_word():
    runs = [run("10", 0, 50), run("6", 10, 46, size=7), run("m", 17, 50)]
    assert text(*runs, run("2", 22, 46, size=7)) == ["10^6 m^2"]


@pytest.mark.parametrize("space", [0, 4])
def test_a_mark_at_the_start_of_a_footnote_stands_apart(space):
    runs = [run("1", 0, 46, size=7), run("Ask first.", 3.5 + space, 50)]
    [line] = lines(runs)
    assert line.text == "[1] Ask first."
    assert line.note_start


def test_the_raised_letter_of_a_logo_stays_in_its_word():
    logo = [("L", 0, 50, 10), ("A", 3, 48, 7), ("T", 6, 50, 10), ("E", 10.5, 52.3, 10)]
    runs = [run(letter, x, y, size=size) for letter, x, y, size in logo]
    assert text(*runs, run("X", 15, 50), run("is used", 25, 50)) == ["LATEX is used"]


def test_small_text_beside_large_text_is_no_script():
    assert text(run("Title", 0, 50, size=20), run("note", 300, 60, size=10)) == ["Title", "note"]


def test_chinese_words_are_joined_without_a_space():
    assert text(run("中文", 0, 50), run("字", 11, 50)) == ["中文字"]


@pytest.mark.parametrize(
    ("words", "is_fixed"),
    [
        ("中文段落测试", False),
        ("print('中文')", True),
        ("# 中文段落测试", True),
        ("x = größer", True),
        ("中文段落版本 2.0 的测试", False),
    ],
)
def test_chinese_text_is_no_code_although_its_characters_have_the_same_width(words, is_fixed):
    [line] = lines([run(words, 0, 50, font=FIXED)])
    assert line.is_fixed == is_fixed


def test_the_style_of_a_line_is_that_of_most_characters():
    [line] = lines([run("tiny", 0, 50, size=9.5), run("normal words", 40, 50)])
    assert line.size == 10


@pytest.mark.parametrize(("text_size", "style"), [(10, (10, False)), (8.5, (8.5, True))])
def test_most_characters_are_code_that_is_smaller_than_the_text(text_size, style):
    code = run("a_long_name_of_code", 30, 50, size=8.5, font=FIXED)
    [line] = lines([run("use", 0, 50, size=text_size), code])
    assert (line.size, line.font.is_fixed) == style


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 700)), max_size=30))
def test_each_word_is_in_exactly_one_row(places):
    runs = [run(f"w{index}", x, y) for index, (x, y) in enumerate(places)]
    found = [word.text for row in rows(runs) for word in row.words]
    assert sorted(found) == sorted(f"w{index}" for index in range(len(places)))
