"""Runs the notebooks of docs/examples: `make notebooks` stores what they print, a test compares.

Counts of executions and the version of Python are not stored: they change with nothing to read.
"""

from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

from tests.support.manuals import ROOT

_TIMEOUT_S = 120  # Of one cell.
_NO_PORTS = Config({"KernelManager": {"transport": "ipc"}})


def stored(path: Path) -> NotebookNode:
    """Returns a notebook as it lies in the repository."""
    return nbformat.read(path, as_version=4)


def executed(path: Path) -> NotebookNode:
    """Returns a notebook with what its cells print now. Raises CellExecutionError."""
    notebook = stored(path)
    language = notebook.metadata.language_info
    options = {"timeout": _TIMEOUT_S, "coalesce_streams": True, "config": _NO_PORTS}
    NotebookClient(notebook, kernel_name="python3", **options).execute()
    notebook.metadata.language_info = language
    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.execution_count = None
            for output in cell.outputs:
                output.pop("execution_count", None)
    return notebook


if __name__ == "__main__":
    for each in (ROOT / "docs" / "examples").glob("*.ipynb"):
        nbformat.write(executed(each), each)
