"""The lines of texts: decoding without a byte order mark, line ends, white space.

All functions are pure.
"""

import re

BYTE_ORDER_MARK = "\ufeff"
# `str.splitlines` would end a line at further characters, for example U+2028.
LINE_END = re.compile(r"\r\n?|\n")


def utf8_text(content: bytes) -> str:
    """Returns the text of UTF-8, without a byte order mark. Raises UnicodeDecodeError."""
    return content.decode().removeprefix(BYTE_ORDER_MARK)


def with_line_feeds(text: str) -> str:
    """Returns a text in which each line end is a line feed."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def filled_lines(text: str) -> list[str]:
    """Returns the lines of a text that are not blank, with single spaces between their words.

    Only line feeds end a line.
    """
    return list(filter(None, (" ".join(line.split()) for line in text.split("\n"))))
