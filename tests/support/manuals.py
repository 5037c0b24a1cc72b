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
    return [block for block in session_blocks(page) if isinstance(block, CommandBlock)]


class OutputBlock(NamedTuple):
    """A block of text or JSON, with the command that prints it or the reason why none does.

    If both are empty, commands of the page print the block.
    """

    language: str
    text: str
    command: str
    not_printed: str


_KINDS = ("printed by", "not printed")
_OUTPUT = re.compile(
    r"(?:^ *<!-- (printed by|not printed): ([^\n]*?) -->\n)?^ *```(json|text|console)\n(.*?)^ *```",
    re.MULTILINE | re.DOTALL,
)


def session_blocks(page: Path) -> list[CommandBlock | OutputBlock]:
    """Returns the blocks of shell commands and of output of a page, in the page's order.

    The comment `<!-- printed by: command -->` in the line before a block of output names a command
    that the page does not show, and `<!-- not printed: reason -->` says what the block is instead.
    """
    text = page.read_text("utf-8")
    found: list[tuple[int, CommandBlock | OutputBlock]] = []
    for match in _COMMANDS.finditer(text):
        found.append((match.start(), CommandBlock(match[2], match[1] or "")))
    for match in _OUTPUT.finditer(text):
        command, reason = (match[2] if match[1] == kind else "" for kind in _KINDS)
        found.append((match.start(), OutputBlock(match[3], match[4], command, reason)))
    return [block for _, block in sorted(found, key=lambda one: one[0])]
