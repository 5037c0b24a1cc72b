"""Converts a notebook to Markdown: its texts, its programs, and the output of each program."""

import json
from collections.abc import Iterator
from typing import Any


def markdown_of(notebook: str) -> str:
    """Returns the Markdown of a notebook, which is given as JSON.

    Raises ValueError if a cell contains an error.
    """
    return "\n\n".join(part for cell in json.loads(notebook)["cells"] for part in _parts(cell))


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        if output["output_type"] == "error":
            raise ValueError(f"a cell of the notebook failed: {output['ename']}")
        text = output.get("text") or output["data"]["text/plain"]
        yield f"```text\n{''.join(text).rstrip()}\n```"
