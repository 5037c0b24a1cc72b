"""Markers in a model's text: which are kept, which vanish, and what they stand behind."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever_svc.markers import MAX_MARKER_CHARS, Marker, MarkerFilter, cited_statements

PASSAGES = 3


def filtered(*pieces: str, passages: int = PASSAGES) -> tuple[str, tuple[Marker, ...]]:
    """The text that comes out of pieces, and its markers."""
    reading = MarkerFilter(passages)
    shown = "".join(map(reading.feed, pieces)) + reading.finish()
    assert shown == reading.text
    return shown, reading.markers


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
def test_known_markers_stay_as_they_are(text: str, numbers: list[tuple[int, ...]]) -> None:
    shown, markers = filtered(text)
    assert shown == text
    assert [marker.numbers for marker in markers] == numbers
    assert all(shown[each.start] in "[【" and shown[each.end - 1] in "]】" for each in markers)


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
def test_unknown_numbers_are_dropped(text: str, expected: str) -> None:
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
def test_all_else_stays_as_it_is(text: str) -> None:
    assert filtered(text) == (text, ())


def test_code_ends_where_it_ends() -> None:
    """An inline one with its line, a block with as many backticks."""
    assert filtered("5` long [9]\n[9]a `b` [9]c")[0] == "5` long [9]\na `b`c"
    assert filtered("```\n[9]\n``[9]\n``` [9]\n[9]")[0] == "```\n[9]\n``[9]\n```\n"


def test_only_what_may_be_a_marker_is_held_back() -> None:
    reading = MarkerFilter(PASSAGES)
    assert [reading.feed(piece) for piece in ("Dogs ", "bark [", "1", ", 9", "]", ".")] == [
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
def test_it_does_not_matter_where_the_text_is_cut(text: str, data: Any) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert filtered(*pieces) == filtered(text)


@given(FRAGMENTS)
def test_what_comes_out_has_no_unknown_marker(text: str) -> None:
    """Read again, nothing of it is dropped; and without code, none can be found by eye."""
    shown, markers = filtered(text)
    assert filtered(shown) == (shown, markers)
    if "`" not in shown:
        assert not re.search(r"(?:\[ *[4-9] *\]|【 *[4-9] *】)", shown)
    for marker in markers:
        assert set(marker.numbers) <= set(range(1, PASSAGES + 1))
        assert set(re.findall(r"\d", shown[marker.start : marker.end])) <= set("123")


@given(FRAGMENTS)
def test_nothing_but_markers_and_blanks_before_them_is_lost(text: str) -> None:
    signs = re.compile(r"[\s\d\[\]【】,、;…-]")
    assert signs.sub("", filtered(text)[0]) == signs.sub("", text)


@given(st.text())
def test_any_text_passes(text: str) -> None:
    shown, markers = filtered(text)
    for each in cited_statements(shown, markers):
        assert 0 <= each.start <= each.end <= len(shown)


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
def test_a_marker_stands_behind_what_is_said_before_it(
    text: str, expected: list[tuple[str, int]]
) -> None:
    shown, markers = filtered(text)
    found = cited_statements(shown, markers)
    assert [(shown[each.start : each.end], each.number) for each in found] == expected
