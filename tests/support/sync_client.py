"""Makes the synchronous client from the asyncio one: `make sync-client`, then commit the result.

A few substitutions, as in httpcore's script `unasync.py`, and ruff's formatter. The package
`unasync` would replace one of the functions below at the price of three packages: it translates
names only, so the docstrings that differ and the formatting would remain to be done here.
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
# What only one of the clients can say. Each of these must occur in `aio.py`.
_SENTENCES = {
    "For asyncio: create and use it inside one event loop.": (
        "For threads: one client may be shared by all of them."
    ),
}
_WORDS = {
    r"\baio_catalog\b": "sync_catalog",
    r"\b(async|await) ": "",
    r"\bAsync(?=[A-Z])": "",  # AsyncClient, AsyncGenerator
    r"\b__a(?=enter__|exit__)": "__",
    r"\baio_": "",  # aio_channel, aio_outcomes
}


def synchronous(source: Path) -> str:
    """The text of the synchronous module for that of the asyncio one at `source`."""
    _, _, code = source.read_text("utf-8").partition('"""\n')
    for sentence, other in _SENTENCES.items() if source.name == SOURCE.name else ():
        if sentence not in code:
            raise ValueError(f"{source} does not say {sentence!r} any more")
        code = code.replace(sentence, other)
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
