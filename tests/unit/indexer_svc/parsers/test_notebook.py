"""A notebook becomes Markdown and code, with the beginning of its outputs."""

import json
from typing import Any

import pytest

from hrag.errors import TooLarge, UnreadableDocument
from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.notebook import parse_notebook
from indexer_svc.parsers.parsed_file import ParsedFile

AMPLE_BYTES = 1 << 20


def notebook(*cells: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"cells": cells, "nbformat": 4, "metadata": {}, **fields}).encode()


def parsed(*cells: dict[str, Any], **fields: Any) -> ParsedFile:
    return parse_notebook(notebook(*cells, **fields), AMPLE_BYTES)


def markdown(source: str | list[str]) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source}


def code(source: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": outputs}


def printed(text: str | list[str], name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def result(**data: str) -> dict[str, Any]:
    types = {name.replace("_", "/"): text for name, text in data.items()}
    return {"output_type": "execute_result", "data": types}


def left_out(file: ParsedFile) -> dict[LeftOutKind, int]:
    return {part.kind: part.part_count for part in file.report.left_out}


def test_cells_are_markdown_and_code_in_order():
    file = parsed(
        markdown(["# Bees\n", "\n", "They dance."]),
        code("print(1)", printed("1\n")),
        markdown("## Honey\n\nIt ripens."),
        {"cell_type": "raw", "source": "raw text"},
    )
    assert file.text == (
        "# Bees\n\nThey dance.\n\n```\nprint(1)\n```\n\n```\n1\n```\n\n"
        "## Honey\n\nIt ripens.\n\nraw text"
    )
    assert [(head.title, head.depth) for head in file.headings] == [("Bees", 1), ("Honey", 2)]
    for head in file.headings:
        assert file.text[head.char_start :].startswith(f"{'#' * head.depth} {head.title}")
    assert file.title == "Bees"
    assert not file.report.left_out


def test_soft_hyphens_do_not_move_the_headings():
    file = parsed(markdown("so\u00adft\u00ad\n\n# On\u00ade\n\nx"), markdown("# Two"))
    assert [head.title for head in file.headings] == ["One", "Two"]
    for head in file.headings:
        assert file.text[head.char_start :].startswith(f"# {head.title}")


def test_the_title_in_the_metadata_comes_first():
    assert parsed(markdown("# Bees"), metadata={"title": "The dance"}).title == "The dance"
    assert parsed(markdown("# Bees"), metadata=[]).title == "Bees"


def test_a_notebook_of_format_3_is_read():
    cells = [
        {"cell_type": "heading", "level": 2, "source": "Bees"},
        {
            "cell_type": "code",
            "input": "6 * 7",
            "outputs": [{"output_type": "pyout", "text": "42"}],
        },
    ]
    content = json.dumps({"worksheets": [{"cells": cells}], "nbformat": 3}).encode()
    file = parse_notebook(content, AMPLE_BYTES)
    assert file.text == "## Bees\n\n```\n6 * 7\n```\n\n```\n42\n```"


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (result(text_plain="42"), "42"),
        (result(text_plain="x  y\n1  2", text_html="<table>"), "x  y\n1  2"),
        (result(text_plain="<Figure size 640x480 with 1 Axes>", image_png="AAAA"), ""),
        (result(image_png="AAAA"), ""),
        (result(text_markdown="**bold**", text_plain="obj"), "**bold**"),
        (printed("\x1b[31mred\x1b[0m"), "red"),
        (printed("warning", "stderr"), ""),
        (
            {"output_type": "error", "ename": "ValueError", "evalue": "x", "traceback": ["y"]},
            "ValueError: x",
        ),
        ({"output_type": "display_data", "data": 3}, ""),
        ({"output_type": "stream"}, ""),
    ],
)
def test_text_of_outputs_is_kept_and_the_rest_is_reported(output, shown):
    file = parsed(code("x", output))
    assert file.text == "```\nx\n```" + (f"\n\n```\n{shown}\n```" if shown else "")
    assert left_out(file) == ({} if shown else {LeftOutKind.OUTPUT: 1})


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("\n".join(f"line {n}" for n in range(15)), 15),
        ("\n".join(f"line {n}" for n in range(16)), 15),
        ("\n".join("x" * 99 for n in range(15)), 10),
        ("x" * 5_000, 1),
    ],
    ids=["fits", "lines", "characters", "one line"],
)
def test_a_long_output_is_cut_and_reported(text, kept):
    file = parsed(code("", printed(text)))
    lines = file.text.split("\n")[1:-1]
    assert len(lines) == kept
    assert text.startswith("\n".join(lines))
    assert len("\n".join(lines)) <= 1_000
    assert left_out(file) == ({} if "\n".join(lines) == text else {LeftOutKind.OUTPUT: 1})


def test_pictures_in_markdown_are_left_out():
    file = parsed(markdown("a ![x](data:image/png;base64,AAAA) b ![y](y.png)"))
    assert "base64" not in file.text
    assert "![y](y.png)" in file.text
    assert left_out(file) == {LeftOutKind.ATTACHMENT: 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "not an object"),
        (b"{}", "no cells"),
        (b'{"cells": {}}', "no cells"),
        (b'{"worksheets": [{"cells": 3}]}', "no cells"),
        (b"{", "not a notebook"),
        (b'{"cells": ' + b"[" * 100_000, "too deeply"),
    ],
)
def test_other_files_are_refused(content, message):
    with pytest.raises(UnreadableDocument, match=message):
        parse_notebook(content, AMPLE_BYTES)


def test_cells_and_values_of_wrong_types_are_ignored():
    file = parsed(
        {}, code("x", 3), markdown(5), {"cell_type": "code", "source": [1, "y"], "outputs": 7}
    )
    assert file.text == "```\nx\n```\n\n```\ny\n```"
    assert (
        parse_notebook(b'{"cells": [1, null, {"cell_type": "raw", "source": "\\ud800"}]}', 99).text
        == "?"
    )


def test_more_text_than_allowed_is_refused():
    with pytest.raises(TooLarge):
        parse_notebook(notebook(code("x" * 100)), 99)


@pytest.mark.parametrize("level", ["", "12", 0, 7, -1, None, [1]])
def test_a_heading_of_a_wrong_level_has_level_1(level):
    file = parsed({"cell_type": "heading", "level": level, "source": "Bees"})
    assert [(head.title, head.depth) for head in file.headings] == [("Bees", 1)]
