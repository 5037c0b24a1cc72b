"""The formats of documents: their MIME types and the file name extensions that stand for them.

The one table for clients and the indexer. What reads a format is the indexer's own affair, so a
client needs no library of any format.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

PLAIN_TEXT = "text/plain"
MARKDOWN = "text/markdown"
RST = "text/x-rst"
CSV = "text/csv"
TSV = "text/tab-separated-values"
PYTHON = "text/x-python"
HTML = "text/html"
PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
EPUB = "application/epub+zip"

FORMATS_EXTRA = "pip install 'hrag[formats]'"


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its MIME type, the extensions of its files, and other names of the type.

    `is_text` says that it may be sent as text too, not as bytes alone; `needs_extra` that the
    indexer reads it with libraries of the extra `formats`.
    """

    mime_type: str
    extensions: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    is_text: bool = True
    needs_extra: bool = False


FORMATS = (
    Format(PLAIN_TEXT, (".txt", ".text")),
    Format(MARKDOWN, (".md", ".markdown"), ("text/x-markdown",)),
    Format(PDF, (".pdf",), is_text=False),
    Format(HTML, (".html", ".htm", ".xhtml"), ("application/xhtml+xml",), needs_extra=True),
    Format(DOCX, (".docx",), is_text=False, needs_extra=True),
    Format(PPTX, (".pptx",), is_text=False, needs_extra=True),
    Format(XLSX, (".xlsx",), is_text=False, needs_extra=True),
    Format(EPUB, (".epub",), is_text=False, needs_extra=True),
    Format(CSV, (".csv",), ("application/csv",)),
    Format(TSV, (".tsv",)),
    Format(RST, (".rst",), ("text/prs.fallenstein.rst",)),
    # Source code.
    Format(PYTHON, (".py", ".pyi"), ("text/x-script.python", "application/x-python")),
    Format("text/javascript", (".js", ".mjs", ".cjs", ".jsx"), ("application/javascript",)),
    Format("text/x-typescript", (".ts", ".tsx"), ("application/typescript",)),
    Format("text/x-c", (".c", ".h"), ("text/x-csrc", "text/x-chdr")),
    Format("text/x-c++", (".cc", ".cpp", ".cxx", ".hh", ".hpp"), ("text/x-c++src",)),
    Format("text/x-csharp", (".cs",)),
    Format("text/x-go", (".go",)),
    Format("text/x-java", (".java",), ("text/x-java-source",)),
    Format("text/x-kotlin", (".kt",)),
    Format("text/x-lua", (".lua",)),
    Format("text/x-perl", (".pl", ".pm")),
    Format("text/x-php", (".php",), ("application/x-httpd-php",)),
    Format("text/x-ruby", (".rb",)),
    Format("text/x-rust", (".rs",), ("text/rust",)),
    Format("text/x-scala", (".scala",)),
    Format("text/x-shellscript", (".sh", ".bash"), ("application/x-sh",)),
    Format("text/x-sql", (".sql",), ("application/sql",)),
    Format("text/x-swift", (".swift",)),
)

EXTENSIONS = tuple(extension for each in FORMATS for extension in each.extensions)

_BY_NAME: Mapping[str, Format] = {
    name: each for each in FORMATS for name in (each.mime_type, *each.aliases)
}
_BY_EXTENSION: Mapping[str, Format] = {
    extension: each for each in FORMATS for extension in each.extensions
}


def format_of(mime_type: str) -> Format | None:
    """The format of a MIME type in lower case without parameters; None for an unknown one."""
    return _BY_NAME.get(mime_type)


def mime_type_of(file_name: str | PurePath) -> str:
    """The MIME type that a file's extension stands for; empty for an unknown one.

    With an empty type the indexer looks at the content itself.
    """
    found = _BY_EXTENSION.get(PurePath(file_name).suffix.lower())
    return "" if found is None else found.mime_type
