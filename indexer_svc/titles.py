"""Titles of documents and sections, cut to their limits. All functions are pure.

The two limits differ. A document's title has a limit in bytes of UTF-8 (MAX_TITLE_BYTES), which
also applies to a title that a client sends. A section's title has a limit in characters
(MAX_SECTION_TITLE_CHARS).
"""

import re

from hrag.values.limits import MAX_TITLE_BYTES

MAX_SECTION_TITLE_CHARS = 200

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


def metadata_title(text: str) -> str:
    """Returns the title in a file's metadata, on one line and cut to MAX_TITLE_BYTES.

    Returns an empty string if the title is a placeholder that a program has written, for example
    "Untitled 3".
    """
    title = document_title(text)
    return "" if _PLACEHOLDER.fullmatch(title) else title
