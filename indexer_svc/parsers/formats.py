"""The formats that a parser process reads, each by one function.

A format is added here and in `indexer_svc.extract`, which decides what is parsed as what.
"""

from collections.abc import Callable, Mapping

from hrag.types import MARKDOWN, PDF
from indexer_svc.parsers.markdown import parse_markdown
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.pdf import parse_pdf

_PARSERS: Mapping[str, Callable[[bytes, int], ParsedFile]] = {
    PDF: parse_pdf,
    MARKDOWN: parse_markdown,
}


def parse(content: bytes, mime_type: str, max_text_bytes: int) -> ParsedFile:
    """Parses a file in this process.

    Raises InvalidArgument if it cannot be read or has more than `max_text_bytes` bytes of text
    in UTF-8, and whatever a library raises for a damaged file.
    """
    return _PARSERS[mime_type](content, max_text_bytes)
