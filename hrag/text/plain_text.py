"""Removes dangerous characters from untrusted text, for terminals, prompts and models' answers.

Titles and texts come from documents, and answers come from models. Both may contain characters that
move the cursor, end a line where none should end, or show text in another order. In `quoted_lines`,
every line gets a prefix, so no line can pose as something else.
"""

import re

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_BLANKS = "\t\n"
_CONTROLS = [code for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in _BLANKS]
# The characters that reorder text (embeddings, overrides, isolates), and the tag characters, which
# are an invisible copy of ASCII.
_HIDING = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xE0000, 0xE0080)]
_REMOVED = dict.fromkeys((*_CONTROLS, *_HIDING))
_REPLACED = dict.fromkeys(_REMOVED, _REPLACEMENT) | {ord("\r"): " "}

_QUOTED = "> "
_OPENERS, _CLOSERS = "[\N{LEFT BLACK LENTICULAR BRACKET}", "]\N{RIGHT BLACK LENTICULAR BRACKET}"
_NUMBERS = re.compile(
    rf"[{re.escape(_OPENERS)}]([0-9\s,，、;\-\N{{EN DASH}}]*[0-9][0-9\s,，、;\-\N{{EN DASH}}]*)"
    rf"[{re.escape(_CLOSERS)}]"
)
_FULL_WIDTH = "\N{FULLWIDTH LEFT SQUARE BRACKET}\\1\N{FULLWIDTH RIGHT SQUARE BRACKET}"


def plain(text: str) -> str:
    """Returns `text` without control characters, except tab and newline.

    Also removes the characters that hide or reorder text.
    """
    return text.translate(_REMOVED)


def printable(text: str) -> str:
    """Replaces each character that `plain` removes: control characters, and those that hide text.

    Each becomes U+FFFD, except that a carriage return becomes a space. The length stays the same,
    so offsets into the text stay valid.
    """
    return text.translate(_REPLACED)


def one_line(text: str) -> str:
    """Returns `text` as one plain line. Each run of white space becomes a single blank."""
    return plain(" ".join(text.split()))


def quoted_lines(text: str) -> str:
    """Returns `text` plain, with `> ` before each line, as in Markdown and mail.

    A new line begins after every character that Unicode defines as a line end. So a reader can
    always distinguish the lines of `text` from the surrounding text.
    """
    return "\n".join(f"{_QUOTED}{plain(line)}".rstrip() for line in text.splitlines())


def without_markers(text: str) -> str:
    """Returns `text` with full-width brackets around numbers such as [3].

    A model's answer marks its citations as [3]. With other brackets, a reader does not mistake
    numbers in `text` for such markers.
    """
    return _NUMBERS.sub(_FULL_WIDTH, text)
