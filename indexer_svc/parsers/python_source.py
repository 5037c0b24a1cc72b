"""The outline of Python source: classes and functions are sections, the text is kept as it is.

Found by one pattern that knows comments and strings, not by Python's own parser: that one reads
only what the indexer's version of Python allows, and the same bytes must give the same sections
everywhere. Takes linear time. Definitions that are nested deeper than _MAX_DEPTH count as of that
depth.
"""

import re
from collections.abc import Iterator
from itertools import islice

from indexer_svc.parsers.parsed_file import MAX_HEADINGS, Heading, ParsedFile
from indexer_svc.titles import section_title

# Comments and strings come first, so that nothing inside them counts. Then the beginning of a line
# of code with its indentation, behind its decorators; only a definition has a name. A line that
# closes a bracket belongs to the line above.
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


_MAX_DEPTH = 16  # Every passage names all sections around it.


def parse_python(content: bytes, _max_text_bytes: int) -> ParsedFile:
    """Returns UTF-8 text as it is, and its classes and functions as sections.

    A section begins at its first decorator. Source has no title of its own.
    """
    text = content.decode()
    return ParsedFile(text, (), tuple(islice(_headings(text), MAX_HEADINGS)))


def _headings(text: str) -> Iterator[Heading]:
    outer_indents: list[int] = []
    for found in _TOKEN.finditer(text):
        if found["indent"] is None:
            continue
        indent = len(found["indent"].expandtabs())
        while outer_indents and outer_indents[-1] >= indent:
            outer_indents.pop()
        if found["name"]:
            outer_indents.append(indent)
            title = section_title(f"{found['kind']} {found['name']}")
            yield Heading(title, min(len(outer_indents), _MAX_DEPTH), found.start())
