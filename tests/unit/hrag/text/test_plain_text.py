"""Characters of untrusted text that could deceive a reader are removed or replaced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.text.plain_text import one_line, plain, printable, quoted_lines, without_markers

ATTACK = "a\x1b[31m\x00\x9b\u202eb\u2066\U000e0041\tc\nd"


def test_control_and_invisible_characters_are_removed() -> None:
    assert plain(ATTACK) == "a[31mb\tc\nd"


def test_replacing_control_characters_changes_no_offset() -> None:
    assert len(printable(ATTACK)) == len(ATTACK)
    assert printable("a\r\x1bb") == "a \N{REPLACEMENT CHARACTER}b"


def test_a_text_of_several_lines_becomes_one_line() -> None:
    assert one_line(" a\u2028 b\r\n\x1bc ") == "a b c"


@given(st.text())
def test_every_line_is_quoted(text: str) -> None:
    assert all(line.startswith(">") for line in quoted_lines(text).splitlines())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see [3] and [1, 2-4]", "see ［3］ and ［1, 2-4］"),
        ("【7】", "［7］"),
        ("[\t3\N{NO-BREAK SPACE}]", "［\t3\N{NO-BREAK SPACE}］"),
        ("[note] a[i] []", "[note] a[i] []"),
        ("[[3]]", "[［3］]"),
    ],
)
def test_text_that_looks_like_a_citation_marker_is_changed(text: str, expected: str) -> None:
    assert without_markers(text) == expected
