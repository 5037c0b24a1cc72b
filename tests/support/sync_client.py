"""Generates the synchronous client from the asyncio one: `make sync-client`, then commit it.

The script makes a few substitutions, as httpcore's script `unasync.py` does, and runs ruff's
formatter. The package `unasync` could replace only one of the functions below, and it needs three
packages. `unasync` translates only names, so this script would still have to change docstrings and
format the code.
"""

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[2] / "hrag" / "client"
SOURCE = CLIENT / "aio.py"
TARGETS = {SOURCE: CLIENT / "sync.py", CLIENT / "aio_catalog.py": CLIENT / "sync_catalog.py"}

_DOCSTRING = '''\
"""The synchronous client, made from `{}` by `make sync-client`: edit that instead."""
'''
# These sentences are true of the asyncio client only. Each must occur in `aio.py`.
_SENTENCES = {
    "For asyncio: create and use it inside one event loop.": (
        "For threads: one client may be shared by all of them."
    ),
}
_WORDS = {
    r"\baio_catalog\b": "sync_catalog",
    r"\b(async|await) ": "",
    r"\bAsync(?=[A-Z])": "",  # Examples are AsyncClient and AsyncGenerator.
    r"\b__a(?=enter__|exit__)": "__",
    r"\baio_": "",  # Examples are aio_channel and aio_outcomes.
}


def synchronous(source: Path) -> str:
    """Returns the text of the synchronous module for the asyncio module at `source`.

    Raises ValueError if a sentence that must be replaced is missing.
    """
    _, _, code = source.read_text("utf-8").partition('"""\n')
    for sentence, replacement in _SENTENCES.items() if source.name == SOURCE.name else ():
        if sentence not in code:
            raise ValueError(f"{source} does not say {sentence!r} any more")
        code = code.replace(sentence, replacement)
    for pattern, word in _WORDS.items():
        code = re.sub(pattern, word, code)
    return _formatted(_DOCSTRING.format(source.name) + code)


def _formatted(code: str) -> str:
    target = CLIENT / "sync.py"
    for command in (["check", "--select=I", "--fix"], ["format"]):
        arguments = [*command, "--stdin-filename", target, "-"]
        code = _ruff(arguments, code)
    return code


def _ruff(arguments: list[str | Path], code: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments]
    done = subprocess.run(command, input=code, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    for source, target in TARGETS.items():
        target.write_text(synchronous(source), "utf-8")
