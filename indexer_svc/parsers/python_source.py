"""Finds the sections of Python source: its classes and functions. The text is unchanged.

One regular expression finds the definitions; it also recognises comments and strings. Python's own
parser is not used, because it reads only the syntax of the indexer's version of Python, and the
same file must have the same sections on every machine. Parsing takes linear time. Definitions that
are nested deeper than _MAX_DEPTH get the depth _MAX_DEPTH.
"""

import re
from collections.abc import Iterator
from itertools import islice

from indexer_svc.parsers.parsed_file import MAX_HEADINGS, Heading, ParsedFile
from indexer_svc.titles import section_title

# The first alternatives match comments and strings, so that no definition is found inside them. The
# last alternative matches the indentation of a line of code, with the decorators above this line.
# If the line is a definition, the group `name` matches its name. A line that begins with a closing
# bracket is not matched, because it continues an earlier line.
_TOKEN = re.compile(
    r"#[^\n]*+"
    r'|"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\Z)'
    r"|'''(?:[^'\\]|\\.|'(?!''))*+(?:'''|\Z)"
    r'|"(?:[^"\\\n]|\\.)*+"?'
    r"|'(?:[^'\\\n]|\\.)*+'?"
    r"|^(?:[ \t]*@[^\n]*\n){0,20}+(?P<indent>[ \t]*+)(?![ \t\r\n#)\]}])"
    r"(?:(?:async[ \t]++)?(?P<kind>def|class)[ \t]++(?P<name>\w++))?",
    re.MULTILINE | re.DOTALL,
)


# The depth of sections is limited to this value, because a passage lists the titles of all sections
# that contain it.
_MAX_DEPTH = 16


def parse_python(content: bytes, _max_text_bytes: int) -> ParsedFile:
    """Returns the text of a Python file unchanged, with its classes and functions as sections.

    The section of a class or function begins at its first decorator. Source code has no title.
    """
    text = content.decode()
    return ParsedFile(text, (), tuple(islice(_headings(text), MAX_HEADINGS)))


def _headings(text: str) -> Iterator[Heading]:
    outer_indents: list[int] = []
    for match in _TOKEN.finditer(text):
        if match["indent"] is None:
            continue
        indent = len(match["indent"].expandtabs())
        while outer_indents and outer_indents[-1] >= indent:
            outer_indents.pop()
        if match["name"]:
            outer_indents.append(indent)
            title = section_title(f"{match['kind']} {match['name']}")
            yield Heading(title, min(len(outer_indents), _MAX_DEPTH), match.start())
