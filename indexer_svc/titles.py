"""Titles of documents and sections, cut to their limits.

The two limits differ: a document's title is bounded in bytes of UTF-8 (MAX_TITLE_BYTES), as
where a client sends one; a section's in characters (MAX_SECTION_TITLE_CHARS). Pure.
"""

import json
import re

from hrag.values.limits import MAX_TITLE_BYTES

MAX_SECTION_TITLE_CHARS = 200

_MAX_SCALAR_CHARS = 4 * MAX_TITLE_BYTES  # Leaves room for quotes, escapes and indentation.
# A key of the outermost mapping with its value: the rest of the line and the indented lines below.
_TITLE = re.compile(
    r"""^(?:title|"title"|'title')[ \t]*:(?=\s)(?P<value>[^\n]*(?:\n[ \t]+[^\n]*)*)""",
    re.MULTILINE | re.IGNORECASE,
)
# In TOML, a string on one line. The outermost keys come before the first table.
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
# Matches values that are not plain scalars: collections, aliases, anchors, tags, null.
_NOT_PLAIN = re.compile(r"[\[\]{},&*!|>%@`]|[-?:](?:\s|$)|(?:~|null|Null|NULL)$|$")

# What programs write instead of a title: "Untitled 3", "Document1", "Microsoft Word - a.doc",
# "PowerPoint Presentation", the file's name, punctuation. Titles end in the names of files that
# people write about ("A guide to robots.txt"), so such a name is one word or a path.
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
    """`text` on one line without surplus white space, at most MAX_TITLE_BYTES bytes of UTF-8.

    It is cut between code points. Lone surrogates, which UTF-8 cannot encode, are dropped.
    """
    line = " ".join(text.split())
    return line.encode("utf-8", "ignore")[:MAX_TITLE_BYTES].decode("utf-8", "ignore").rstrip()


def section_title(text: str) -> str:
    """`text` on one line without surplus white space, cut at MAX_SECTION_TITLE_CHARS characters."""
    return " ".join(text.split())[:MAX_SECTION_TITLE_CHARS].rstrip()


def front_matter_title(front_matter: str) -> str:
    """The string under the outermost key `title` of front matter; empty if there is none.

    Reads plain, quoted and block scalars of YAML, folded to one line, and strings of TOML on
    one line. No YAML parser is involved, so anchors, tags and the expansion of aliases cannot
    be abused; a title that uses them, a list, a mapping and null count as none.
    """
    if front_matter.startswith(_TOML_MARK):
        return document_title(_toml_title(front_matter))
    found = _TITLE.search(front_matter)
    if found is None:
        return ""
    first_line, _, _ = found["value"].partition("\n")
    if not _COMMENT.sub("", first_line).strip():
        return ""  # Indented lines alone are a list or a mapping.
    return document_title(_scalar(" ".join(found["value"][:_MAX_SCALAR_CHARS].split())))


def metadata_title(text: str) -> str:
    """A title from a file's metadata; empty where it only repeats what a program put there."""
    title = document_title(text)
    return "" if _PLACEHOLDER.fullmatch(title) else title


def _scalar(value: str) -> str:
    """A YAML scalar that has been folded to one line."""
    if quoted := _DOUBLE_QUOTED.match(value):
        return _unescaped(quoted[0])
    if quoted := _SINGLE_QUOTED.match(value):
        return quoted[1].replace("''", "'")
    if block := _BLOCK_SCALAR.match(value):
        return value[block.end() :]
    plain = _COMMENT.sub("", value)
    return "" if _NOT_PLAIN.match(plain) or plain[0] in "\"'" else plain


def _toml_title(front_matter: str) -> str:
    table = _TOML_TABLE.search(front_matter)
    found = _TOML_TITLE.search(front_matter, 0, table.start() if table else len(front_matter))
    if found is None:
        return ""
    value = found["value"][:_MAX_SCALAR_CHARS]
    if quoted := _DOUBLE_QUOTED.match(value):
        return _unescaped(quoted[0])
    literal = _TOML_LITERAL.match(value)
    return literal[1] if literal else ""


def _unescaped(quoted: str) -> str:
    """A double-quoted scalar's text; with escapes that JSON lacks, as it is written."""
    try:
        return str(json.loads(quoted))
    except ValueError:
        return quoted[1:-1]
