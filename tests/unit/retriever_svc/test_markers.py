"""Markers of existing passages stay in a model's text, and other markers are removed.

A marker that stays cites a statement, which is usually the text before the marker.
"""

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.types import MAX_ANSWER_CITATIONS, MAX_STATEMENT_CITATIONS
from retriever_svc.markers import MAX_MARKER_CHARS, Marker, MarkerFilter, cited_statements

PASSAGES = 3


def filtered(*pieces: str, passages: int = PASSAGES) -> tuple[str, tuple[Marker, ...]]:
    """Returns the output for a text that comes in pieces, and the markers in the output."""
    marker_filter = MarkerFilter(passages)
    output = "".join(map(marker_filter.feed, pieces)) + marker_filter.finish()
    assert output == marker_filter.text
    return output, marker_filter.markers


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Dogs bark [1].", [(1,)]),
        ("Dogs bark[1].", [(1,)]),
        ("Dogs bark [1][3].", [(1,), (3,)]),
        ("Dogs bark [1] [3].", [(1,), (3,)]),
        ("Dogs bark [1, 3].", [(1, 3)]),
        ("Dogs bark [1,3,1].", [(1, 3)]),
        ("Dogs bark [1;3].", [(1, 3)]),
        ("Dogs bark [1-3].", [(1, 2, 3)]),
        ("Dogs bark [1 – 2, 3].", [(1, 2, 3)]),
        ("狗会叫【1】。", [(1,)]),
        ("狗会叫【1、3】。", [(1, 3)]),
        ("狗会叫[1，2]。", [(1, 2)]),
        ("[2] says so.", [(2,)]),
    ],
)
def test_markers_of_existing_passages_stay_unchanged(
    text: str, numbers: list[tuple[int, ...]]
) -> None:
    output, markers = filtered(text)
    assert output == text
    assert [marker.numbers for marker in markers] == numbers
    assert all(
        output[marker.start] in "[【" and output[marker.end - 1] in "]】" for marker in markers
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dogs bark [4].", "Dogs bark."),
        ("Dogs bark  [4] [999].", "Dogs bark."),
        ("Dogs bark" + " " * 2 * MAX_MARKER_CHARS + "[4].", "Dogs bark."),
        ("Dogs [4] bark.", "Dogs bark."),
        ("Dogs bark [1][4].", "Dogs bark [1]."),
        ("Dogs bark [4][1].", "Dogs bark[1]."),
        ("Dogs bark [1, 4].", "Dogs bark [1]."),
        ("Dogs bark [2-5].", "Dogs bark [2, 3]."),
        ("Dogs bark [3-1].", "Dogs bark."),
        ("狗会叫【9】。", "狗会叫。"),
        ("狗会叫【1、9】。", "狗会叫【1】。"),
        ("[4]", ""),
        ("Dogs bark.\n[4]", "Dogs bark.\n"),
        ("[[4]4]", "[…4]"),
        ("`a` [4].", "`a`."),
        ("`a`[4]`b` [4]", "`a`…`b`"),
    ],
)
def test_numbers_without_a_passage_are_removed(text: str, expected: str) -> None:
    assert filtered(text)[0] == expected


@pytest.mark.parametrize(
    "text",
    [
        "[note] [a1] [] [ ] [1a] [1990s] [2024] [0] [-1] [1.5] [01] [1,] [,1] [1 2] [1--2]",
        "[^4] [4: see below] [x](y)",
        "【note】 [4】 【4]",
        "an open [4",
        "an open [4\n]",
        "`a[4]` and ``b[5] ` [6]`` there",
        "```python\nx = [7, 8]\ny = a[9]\n```",
        "````\n```\n[9]\n````",
        "ends in blanks   ",
        "[" + "1, " * MAX_MARKER_CHARS + "9]",
    ],
)
def test_text_that_is_no_marker_stays_unchanged(text: str) -> None:
    assert filtered(text) == (text, ())


def test_markers_after_the_end_of_code_are_filtered() -> None:
    """After the end of code, `[9]` is a marker without a passage and is removed.

    Inline code ends at the end of its line at the latest. A block of code ends at a run of at least
    as many backticks as the run that began it.
    """
    assert filtered("5` long [9]\n[9]a `b` [9]c")[0] == "5` long [9]\na `b`c"
    assert filtered("```\n[9]\n``[9]\n``` [9]\n[9]")[0] == "```\n[9]\n``[9]\n```\n"


def test_only_text_that_may_become_a_marker_is_held_back() -> None:
    marker_filter = MarkerFilter(PASSAGES)
    assert [marker_filter.feed(piece) for piece in ("Dogs ", "bark [", "1", ", 9", "]", ".")] == [
        "Dogs",
        " bark",
        "",
        "",
        " [1]",
        ".",
    ]


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *"[]【】`,、;- \n.狗1239",
            "```",
            "[1]",
            "[4]",
            " [5]",
            "[1-7]",
            "Dogs",
            " " * MAX_MARKER_CHARS,
        ]
    )
).map("".join)


@given(FRAGMENTS, st.data())
def test_the_output_does_not_depend_on_how_the_text_is_cut_into_pieces(
    text: str, data: Any
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert filtered(*pieces) == filtered(text)


@given(FRAGMENTS)
def test_the_output_has_no_marker_without_a_passage(text: str) -> None:
    """If the output is filtered again, nothing is removed.

    If it has no code, a regular expression finds no marker without a passage either.
    """
    output, markers = filtered(text)
    assert filtered(output) == (output, markers)
    if "`" not in output:
        assert not re.search(r"(?:\[ *[4-9] *\]|【 *[4-9] *】)", output)
    for marker in markers:
        assert set(marker.numbers) <= set(range(1, PASSAGES + 1))
        assert set(re.findall(r"\d", output[marker.start : marker.end])) <= set("123")


@given(FRAGMENTS)
def test_only_markers_and_the_blanks_before_them_are_removed(text: str) -> None:
    signs = re.compile(r"[\s\d\[\]【】,、;…-]")
    assert signs.sub("", filtered(text)[0]) == signs.sub("", text)


@given(st.text())
def test_the_statements_of_any_text_lie_inside_the_output(text: str) -> None:
    output, markers = filtered(text)
    for statement in cited_statements(output, markers):
        assert 0 <= statement.start <= statement.end <= len(output)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dogs bark [1]. Cats sleep [2].", [("Dogs bark", 1), ("Cats sleep", 2)]),
        ("Dogs bark. [1] Cats sleep. [2]", [("Dogs bark.", 1), ("Cats sleep.", 2)]),
        ("Dogs bark.[1] Cats sleep.[2]", [("Dogs bark.", 1), ("Cats sleep.", 2)]),
        ("Dogs bark [1][2].", [("Dogs bark", 1), ("Dogs bark", 2)]),
        ("Dogs bark [1], [2].", [("Dogs bark", 1), ("Dogs bark", 2)]),
        ("Dogs bark [1, 2].", [("Dogs bark", 1), ("Dogs bark", 2)]),
        ("Dogs bark [1] and cats sleep [2].", [("Dogs bark", 1), ("and cats sleep", 2)]),
        ("Fish swim. Dogs bark [1].", [("Dogs bark", 1)]),
        ("狗会叫。【1】猫睡觉【2】。", [("狗会叫。", 1), ("猫睡觉", 2)]),
        ("- [1] Dogs bark.\n- [2] Cats sleep.", [("Dogs bark.", 1), ("Cats sleep.", 2)]),
        ("- Dogs bark [1]\n- Cats sleep [2]", [("- Dogs bark", 1), ("- Cats sleep", 2)]),
        ("Dogs bark.\n[1]", [("Dogs bark.", 1)]),
        ("Dogs bark. ... [1]", [("Dogs bark.", 1)]),
        ("[1]", [("", 1)]),
    ],
)
def test_a_marker_cites_the_statement_before_it_or_at_the_start_of_a_line_after_it(
    text: str, expected: list[tuple[str, int]]
) -> None:
    output, markers = filtered(text)
    statements = cited_statements(output, markers)
    cited = [(output[item.start : item.end], item.number) for item in statements]
    assert cited == expected


# Tests of the limits of citations.


def test_a_statement_has_a_limited_number_of_citations() -> None:
    output, markers = filtered(f"Dogs bark {'[1] ' * 50}and cats sleep [2][1-3].")
    assert output == f"Dogs bark {'[1] ' * MAX_STATEMENT_CITATIONS}and cats sleep [2][1-3]."
    assert len(markers) == MAX_STATEMENT_CITATIONS + 2
    output, markers = filtered("Dogs bark [1-30, 2, 99].", passages=40)
    assert output == f"Dogs bark [{', '.join(map(str, range(1, 21)))}]."
    assert [marker.numbers for marker in markers] == [tuple(range(1, 21))]


def test_an_answer_has_a_limited_number_of_citations_and_removed_ones_are_counted() -> None:
    marker_filter = MarkerFilter(PASSAGES)
    output = marker_filter.feed("Dogs bark [1, 9]. " * (MAX_ANSWER_CITATIONS + 7))
    assert output.count("[1]") == len(marker_filter.markers) == MAX_ANSWER_CITATIONS
    assert output.endswith("Dogs bark.")
    assert marker_filter.removed == 7


def test_the_time_for_statements_is_proportional_to_the_markers() -> None:
    """Eight times as many markers take less than 24 times as long; quadratic steps take 64 times.

    The text has one line, one list of signs and few words, each of which was read for each marker.
    """

    def processor_s(count: int) -> float:
        text = "- " * count + "a. " + "[1] . " * count
        markers = [
            Marker(match.start(), match.end(), (1,)) for match in re.finditer(r"\[1\]", text)
        ]
        began = time.process_time()
        assert len(cited_statements(text, markers)) == count
        return time.process_time() - began

    small, large = (min(processor_s(count) for _ in range(3)) for count in (2_000, 16_000))
    assert large < 24 * small
