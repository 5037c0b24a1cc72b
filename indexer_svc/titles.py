"""Titles of documents and sections, cut to their limits. All functions are pure.

The two limits differ. A document's title has a limit in bytes of UTF-8 (MAX_TITLE_BYTES), which
also applies to a title that a client sends. A section's title has a limit in characters
(MAX_SECTION_TITLE_CHARS).
"""

import json
import re

from hrag.values.limits import MAX_TITLE_BYTES

MAX_SECTION_TITLE_CHARS = 200

# At most this many characters of the title's value in front matter are read. This is more than a
# title may have, because the value may also have quotes, escapes and indentation.
_MAX_SCALAR_CHARS = 4 * MAX_TITLE_BYTES
# Matches the key `title` of the outermost mapping in YAML, with its value. The value is the rest of
# the line and the indented lines below it.
_TITLE = re.compile(
    r"""^(?:title|"title"|'title')[ \t]*:(?=\s)(?P<value>[^\n]*(?:\n[ \t]+[^\n]*)*)""",
    re.MULTILINE | re.IGNORECASE,
)
# In TOML, the title is a string on one line. The outermost keys come before the first table.
_TOML_MARK = "+++"
_TOML_TITLE = re.compile(
    r"""^(?:title|"title"|'title')[ \t]*=[ \t]*(?P<value>["'].*)""", re.MULTILINE
)
_TOML_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_TOML_LITERAL = re.compile(r"'([^'\n]*)'")
_DOUBLE_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_SINGLE_QUOTED = re.compile(r"'((?:[^']|'')*)'")
_BLOCK_SCALAR = re.compile(r"[|>][-+\d]*(?: |$)")
_COMMENT = re.compile(r"(?:^|\s)#.*", re.DOTALL)
# Matches YAML values that are not plain scalars: collections, aliases, anchors, tags, null.
_NOT_PLAIN = re.compile(r"[\[\]{},&*!|>%@`]|[-?:](?:\s|$)|(?:~|null|Null|NULL)$|$")

# Matches texts that programs write instead of a title: "Untitled 3", "Document1", "Microsoft Word
# - a.doc", "PowerPoint Presentation", the name of the file, punctuation. A real title may end with
# the name of a file that the text is about ("A guide to robots.txt"). So a text that ends with one
# of the file extensions from `html` to `fm` matches only if it is one word or a path.
_PLACEHOLDER = re.compile(
    r"untitled(?:[\s_-]*+(?:document|presentation|\d++))*"
    r"|(?:document|presentation|slide|book)[\s_-]?\d+"
    r"|powerpoint presentation"
    r"|microsoft (?:office )?(?:word|excel|powerpoint|publisher|visio)\b.*"
    r"|.*\S\.(?:docx?|dotx?|odt|rtf|wpd|pptx?|odp|xlsx?|ods|pdf|e?ps|dvi|indd|qxd)"
    r"|(?:\S*|[a-z]:\\.*)\.(?:html?|txt|md|tex|key|pages|fm)"
    r"|\W*",
    re.IGNORECASE,
)


def document_title(text: str) -> str:
    """Returns `text` on one line, cut to MAX_TITLE_BYTES bytes of UTF-8 between code points.

    Each run of white space becomes one space. Lone surrogates are removed, because UTF-8 cannot
    encode them.
    """
    line = " ".join(text.split())
    return line.encode("utf-8", "ignore")[:MAX_TITLE_BYTES].decode("utf-8", "ignore").rstrip()


def section_title(text: str) -> str:
    """Returns `text` on one line, cut to MAX_SECTION_TITLE_CHARS characters.

    Each run of white space becomes one space.
    """
    return " ".join(text.split())[:MAX_SECTION_TITLE_CHARS].rstrip()


def front_matter_title(front_matter: str) -> str:
    """Returns the string under the outermost key `title` of front matter, or an empty string.

    Reads plain, quoted and block scalars of YAML, which may continue on the next lines, and strings
    of TOML on one line. No YAML parser is used, so that no hostile text can abuse anchors, tags and
    the expansion of aliases. The result is empty if the title uses anchors, tags or aliases, or if
    it is a list, a mapping or null.
    """
    if front_matter.startswith(_TOML_MARK):
        return document_title(_toml_title(front_matter))
    match = _TITLE.search(front_matter)
    if match is None:
        return ""
    first_line, _, _ = match["value"].partition("\n")
    if not _COMMENT.sub("", first_line).strip():
        # A value that begins only in the indented lines below the key is a list or a mapping.
        return ""
    return document_title(_scalar_text(" ".join(match["value"][:_MAX_SCALAR_CHARS].split())))


def metadata_title(text: str) -> str:
    """Returns the title in a file's metadata, on one line and cut to MAX_TITLE_BYTES.

    Returns an empty string if the title is a placeholder that a program has written, for example
    "Untitled 3".
    """
    title = document_title(text)
    return "" if _PLACEHOLDER.fullmatch(title) else title


def _scalar_text(value: str) -> str:
    """Returns the text of a YAML scalar whose lines have been joined into one line."""
    if quoted := _DOUBLE_QUOTED.match(value):
        return _unescape(quoted[0])
    if quoted := _SINGLE_QUOTED.match(value):
        return quoted[1].replace("''", "'")
    if block := _BLOCK_SCALAR.match(value):
        return value[block.end() :]
    plain = _COMMENT.sub("", value)
    return "" if _NOT_PLAIN.match(plain) or plain[0] in "\"'" else plain


def _toml_title(front_matter: str) -> str:
    table = _TOML_TABLE.search(front_matter)
    match = _TOML_TITLE.search(front_matter, 0, table.start() if table else len(front_matter))
    if match is None:
        return ""
    value = match["value"][:_MAX_SCALAR_CHARS]
    if quoted := _DOUBLE_QUOTED.match(value):
        return _unescape(quoted[0])
    literal = _TOML_LITERAL.match(value)
    return literal[1] if literal else ""


def _unescape(quoted: str) -> str:
    """Returns the text of a string in double quotes (YAML or TOML), with its escapes decoded.

    If the string has escapes that JSON does not have, no escape is decoded.
    """
    try:
        return str(json.loads(quoted))
    except ValueError:
        return quoted[1:-1]
