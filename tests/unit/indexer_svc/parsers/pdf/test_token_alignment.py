"""Words of a text are aligned with the printed ones, wherever they are, not by coincidence."""

from hypothesis import given
from hypothesis import strategies as st

from indexer_svc.parsers.pdf.span_boxes import span_boxes
from indexer_svc.parsers.pdf.token_alignment import aligned_tokens
from indexer_svc.parsers.recognised_words import PrintedWord

FIRST = ["the", "pump", "is", "tested", "by", "hand", "once", "every", "week", "in", "spring"]
SECOND = ["all", "valves", "of", "this", "station", "are", "closed", "before", "winter", "begins"]
NOTE = ["see", "also", "the", "report", "of", "the", "committee"]


def pairs(ours: list[str], theirs: list[str]) -> dict[int, int]:
    return {pair.ours: pair.theirs for pair in aligned_tokens(ours, theirs)}


def test_the_same_words_are_pairs():
    assert pairs(FIRST, FIRST) == {index: index for index in range(len(FIRST))}


def test_parts_in_another_order_are_found():
    found = pairs([*FIRST, *SECOND, *NOTE], [*NOTE, *SECOND, *FIRST])
    first, second, note = len(FIRST), len(SECOND), len(NOTE)
    expected = {index: note + second + index for index in range(first)}
    expected |= {first + index: note + index for index in range(second)}
    expected |= {first + second + index: index for index in range(note)}
    assert found == expected


def test_words_that_two_texts_share_without_their_neighbours_are_no_pairs():
    ours = ["red", "the", "blue", "one", "two", "the"]
    assert not pairs(ours, ["sun", "the", "moon", "three", "four", "the"])


def test_a_word_that_differs_is_aligned_by_its_letters():
    read = [word.replace("hand", "hanb") for word in FIRST]
    assert pairs(FIRST, read) == {index: index for index in range(len(FIRST))}


@given(
    st.lists(st.sampled_from("abcdef"), max_size=30),
    st.lists(st.sampled_from("abcdef"), max_size=30),
)
def test_no_word_of_equal_letters_has_two_partners(ours, theirs):
    found = [(pair.ours, pair.theirs) for pair in aligned_tokens(ours, theirs)]
    assert len({index for index, _ in found}) == len({other for _, other in found}) == len(found)
    assert all(ours[index] == theirs[other] for index, other in found)


def printed(*lines: str) -> list[PrintedWord]:
    """Returns the words of lines, each of which is 10 points high and 10 wide for a word."""
    return [
        PrintedWord(word, (10.0 * at, 10.0 * number, 10.0 * at + 10, 10.0 * number + 9), number)
        for number, line in enumerate(lines)
        for at, word in enumerate(line.split())
    ]


def boxes(text: str, part: str, *lines: str) -> list[tuple[float, float, float]]:
    """Returns the line, the left and the right edge of each box of a part of a text."""
    start = text.index(part)
    (found,) = span_boxes(text, [(start, start + len(part))], printed(*lines))
    return [(top / 10, left, right) for left, top, right, _ in found]


def test_a_word_that_is_broken_at_the_end_of_a_column_is_found_below_a_note_and_above():
    text = "The pump is measured by hand. It is new. See the report."
    lines = ("The pump is meas-", "See the report.", "ured by hand. It is new.")
    assert boxes(text, "The pump is measured by hand.", *lines) == [(0, 0, 40), (2, 0, 30)]


def test_a_box_contains_no_word_of_other_text():
    """The line has a word of another column, because the layout did not find that column."""
    text = "Every pump has two valves here. Elsewhere nothing else is known."
    lines = ("Every pump Elsewhere has two valves here.", "nothing else is known.")
    assert boxes(text, "Every pump has two valves here.", *lines) == [(0, 0, 20), (0, 30, 70)]


def test_a_span_that_is_mostly_not_printed_has_no_box():
    text = "Name: a pump of another kind that nobody knows. Every valve is closed before winter."
    lines = ("Every valve is closed before winter.", "A pump.")
    assert boxes(text, "Name: a pump of another kind that nobody knows.", *lines) == []
    assert boxes(text, "Every valve is closed before winter.", *lines) == [(0, 0, 60)]
