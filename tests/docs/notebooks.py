"""Runs the notebooks of docs/examples. `make notebooks` stores their output; a test compares it.

Execution counts and the version of Python are not stored, because their changes mean nothing to
readers.
"""

from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

from tests.support.manuals import ROOT

# One cell may run so long.
_TIMEOUT_S = 120
_NO_PORTS = Config({"KernelManager": {"transport": "ipc"}})


def stored(path: Path) -> NotebookNode:
    """Returns a notebook with the output that is stored in the repository."""
    return nbformat.read(path, as_version=4)


def executed(path: Path) -> NotebookNode:
    """Runs a notebook; returns it with its new output.

    Raises CellExecutionError if a cell fails.
    """
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
    for path in (ROOT / "docs" / "examples").glob("*.ipynb"):
        nbformat.write(executed(path), path)
