"""Makes the synchronous client from the asyncio one: `make sync-client`, then commit the result.

Four substitutions, as in httpcore's script `unasync.py`, and ruff's formatter. The package
`unasync` would replace one of the functions below at the price of three packages: it translates
names only, so the docstrings that differ and the formatting would remain to be done here.
"""

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parent.parent / "hrag" / "client"
SOURCE = CLIENT / "aio.py"
TARGET = CLIENT / "sync.py"

_DOCSTRING = '''\
"""The synchronous client. Generated from `aio.py` by `make sync-client`: edit that instead."""
'''
# What only one of the clients can say. Each of these must occur.
_SENTENCES = {
    "For asyncio: create and use it inside one event loop.": (
        "For threads: one client may be shared by all of them."
    ),
}
_WORDS = {
    r"\b(async|await) ": "",
    r"\bAsync(?=[A-Z])": "",  # AsyncClient, AsyncGenerator
    r"\b__a(?=enter__|exit__)": "__",
    r"\baio_": "",  # aio_channel, aio_outcomes
}


def synchronous(source: str) -> str:
    """The text of `sync.py` for that of `aio.py`."""
    _, _, code = source.partition('"""\n')
    for sentence, other in _SENTENCES.items():
        if sentence not in code:
            raise ValueError(f"{SOURCE} does not say {sentence!r} any more")
        code = code.replace(sentence, other)
    for pattern, word in _WORDS.items():
        code = re.sub(pattern, word, code)
    return _formatted(_DOCSTRING + code)


def _formatted(code: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", TARGET, "-"]
    done = subprocess.run(command, input=code, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    TARGET.write_text(synchronous(SOURCE.read_text("utf-8")), "utf-8")
