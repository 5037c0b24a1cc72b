"""The documents of the repository, and the examples in them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _documents() -> list[Path]:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")]
    return sorted(page for page in pages if "node_modules" not in page.parts)


DOCUMENTS = _documents()
MANUALS = [page for page in DOCUMENTS if page.name != "CHANGELOG.md"]


class Block(NamedTuple):
    """A block of code in a page, with its language."""

    language: str
    text: str


def page_id(page: Path) -> str:
    """Returns the path of a page below the repository; it is the id of the page's test case."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[Block]:
    """Returns the code blocks of a page that are in one of these languages, in page order."""
    code_blocks = [Block(*match) for match in FENCE.findall(page.read_text("utf-8"))]
    return [block for block in code_blocks if block.language in languages]


class CommandBlock(NamedTuple):
    """A block of shell commands, and the reason why no test can run it; empty if one runs it."""

    text: str
    norun: str


_COMMANDS = re.compile(
    r"(?:^ *<!-- norun: ([^\n]*?) -->\n)?^ *```(?:sh|bash)\n(.*?)^ *```", re.MULTILINE | re.DOTALL
)


def command_blocks(page: Path) -> list[CommandBlock]:
    """Returns the blocks of shell commands of a page.

    The comment `<!-- norun: reason -->` in the line before a block says why no test can run it.
    """
    matches = _COMMANDS.findall(page.read_text("utf-8"))
    return [CommandBlock(text, reason) for reason, text in matches]
