"""The chunks of a document are drawn as a tree."""

from rich.console import Console

from hrag.cli.tree import draw
from hrag.types import Chunk, ChunkNode, DocumentInfo, Hierarchy, Span

TEXT = "alpha beta gamma delta "
INFO = DocumentInfo("guide", "A guide", "", "text/plain", {}, (4, 2), 8, 23, 0, 0, 1)


def _node(level: int, index: int, start: int, end: int, parent: str = "") -> ChunkNode:
    chunk = Chunk(
        chunk_id=f"guide#{level}.{index}",
        document_id="guide",
        level=level,
        index=index,
        content="",
        token_count=2,
        span=Span(start, end, start, end),
        section_path=("A guide", "Part"),
        first_page=2,
        last_page=3,
        title="A guide",
        source="",
        metadata={},
    )
    return ChunkNode(chunk, parent)


def _hierarchies():
    leaves = [
        (_node(0, 0, 0, 6, "guide#1.0"), _node(0, 1, 6, 11, "guide#1.0")),
        (_node(0, 2, 11, 17, "guide#1.1"), _node(0, 3, 17, 23, "guide#1.1")),
    ]
    tops = [_node(1, 0, 0, 11), _node(1, 1, 11, 23)]
    for index in range(2):
        yield Hierarchy(tops[index], (), (tops[1 - index],), leaves[index])


def _lines(lowest: int = 0, budget: int = 100) -> list[str]:
    drawn, count = draw(INFO, TEXT, _hierarchies(), lowest, budget)
    console = Console(width=120, color_system=None)
    with console.capture() as captured:
        console.print(drawn)
    lines = captured.get().splitlines()
    assert len(lines) == count + 2  # The first two lines describe the document itself.
    return lines


def test_every_chunk_is_drawn_below_its_parent():
    lines = _lines()[2:]
    order = [line.split("#")[1].split()[0] for line in lines]
    assert order == ["1.0", "0.0", "0.1", "1.1", "0.2", "0.3"]
    depths = [line.index("#") for line in lines]
    assert depths[0] == depths[3] < depths[1] == depths[2] == depths[4] == depths[5]


def test_a_line_shows_the_span_and_the_first_words_of_a_chunk():
    line = _lines()[5]
    assert line.startswith("└── #1.1 2 tokens [11:23] Part · p. 2-3  gamma delta")


def test_the_tree_has_at_most_the_requested_count_of_chunks():
    lines = _lines(budget=4)
    assert "#1.1" in lines[-1]


def test_lower_levels_can_be_left_out():
    assert not any("#0." in line for line in _lines(lowest=1))
