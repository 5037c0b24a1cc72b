"""mypy checks programs outside the source tree with the types of the installed packages."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM = """\
from hrag.client import Client
from hrag_fast import fold

reveal_type(fold)
with Client() as client:
    reveal_type(client.search("acme", "bees").passages)
    client.search(1, "bees")
"""


def test_mypy_sees_the_types_from_another_folder(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    options = ("--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, program.name],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    for expected in (
        'program.py:4: note: Revealed type is "def (text: str',
        'program.py:6: note: Revealed type is "tuple[hrag.values.search.Passage, ...]"',
        'program.py:7: error: Argument 1 to "search" of "Client" has incompatible type "int"',
    ):
        assert expected in done.stdout
    assert done.stdout.count("error:") == 1, done.stdout
