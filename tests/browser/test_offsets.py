"""Offsets in code points are converted to offsets in UTF-16 units, which JavaScript uses."""

import random
from typing import Any

import pytest

from tests.browser.explorer import Explorer, expect

pytestmark = pytest.mark.browser

TEXTS = ("", "plain", "😀", "a😀b🚒c", "第三十九条", "𠮷野家 𠮷", "e\u0301 👩‍🚒 ok", "😀" * 5)
_MARKED = """async ([text, start, marks]) => {
  const { textPainter } = await import("./marked_text.js");
  const nodes = textPainter(text, start, marks)(0, text.length);
  return nodes.map((node) => [node.className ?? "", node.textContent]);
}"""
_OFFSETS = """async (texts) => {
  const { utf16Offsets } = await import("./text_offsets.js");
  return texts.map((text) => {
    const offset = utf16Offsets(text);
    return [...text, ""].map((_, index) => text.slice(0, offset(index)));
  });
}"""


@pytest.fixture
def loaded(explorer: Explorer) -> Explorer:
    explorer.page.goto(explorer.url)
    expect(explorer.page.get_by_role("tablist")).to_be_visible()
    return explorer


def test_the_offset_of_every_code_point_is_converted(loaded: Explorer) -> None:
    expected = [[text[:index] for index in range(len(text) + 1)] for text in TEXTS]
    assert loaded.page.evaluate(_OFFSETS, TEXTS) == expected


def test_marks_cover_exactly_their_ranges(loaded: Explorer) -> None:
    """The random marks overlap, are partly outside the text, and cover wide characters."""
    draw = random.Random(7)
    for _ in range(40):
        text = "".join(draw.choices("ab 😀𠮷第", k=draw.randint(0, 30)))
        start = draw.randint(0, 50)
        marks = [_mark(draw, kind, start, len(text)) for kind in ("leaf", "term", "cited")]
        pieces = loaded.page.evaluate(_MARKED, [text, start, marks])
        assert "".join(content for _, content in pieces) == text
        for mark in marks:
            marked = [content for kinds, content in pieces if mark["kind"] in kinds]
            low, high = max(mark["start"] - start, 0), max(mark["end"] - start, 0)
            assert "".join(marked) == text[low:high]


def _mark(draw: random.Random, kind: str, start: int, length: int) -> dict[str, Any]:
    first = start + draw.randint(-5, length + 5)
    return {"kind": kind, "start": first, "end": first + draw.randint(0, 12)}
