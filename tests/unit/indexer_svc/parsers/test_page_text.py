"""The lines of a recognised page are written in reading order, as paragraphs."""

from hypothesis import given
from hypothesis import strategies as st

from indexer_svc.parsers.page_text import page_text
from indexer_svc.parsers.recognition import RecognisedLine, RecognisedPage


def page(*lines: RecognisedLine) -> RecognisedPage:
    return RecognisedPage(lines, 1000, 1000)


def line(text: str, left: float, top: float, turn: int = 0, height: float = 20) -> RecognisedLine:
    return RecognisedLine(text, left, top, left + 10 * len(text), top + height, turn)


def test_lines_are_in_order_from_top_to_bottom_and_boxes_of_a_row_from_left_to_right():
    lines = (line("240.9", 500, 13), line("third", 0, 50), line("Burglary", 0, 10))
    assert page_text(page(*lines, line("second", 0, 30))) == "Burglary 240.9\nsecond\nthird"


def test_a_gap_begins_a_paragraph():
    lines = [line("one", 0, 0), line("two", 0, 25), line("three", 0, 70), line("four", 0, 95)]
    assert page_text(page(*lines)) == "one\ntwo\n\nthree\nfour"


def test_sideways_text_comes_last():
    lines = (line("margin", 900, 0, 90), line("one", 0, 0))
    assert page_text(page(*lines)) == "one\n\nmargin"
    assert page_text(page()) == ""


@given(
    st.lists(
        st.builds(
            line,
            st.from_regex("[a-z]{1,8}", fullmatch=True),
            st.integers(0, 900),
            st.integers(0, 900),
            st.sampled_from([0, 0, 0, 90]),
            st.integers(1, 60),
        ),
        max_size=20,
    )
)
def test_no_word_is_lost_or_doubled(lines):
    assert sorted(page_text(page(*lines)).split()) == sorted(line.text for line in lines)
