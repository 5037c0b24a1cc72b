"""The formats of documents: their MIME types and file name extensions.

Clients and the indexer share this table. Only the indexer knows which library reads a format, so a
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
    """A format of documents: its MIME type and the extensions of its files.

    `aliases` are other MIME types by which clients may name the format. `is_text` is True if the
    format may also be sent as text, not only as bytes. `needs_extra` is True if the indexer reads
    the format with libraries that only `pip install 'hrag[formats]'` installs.
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
    # The following formats are source code.
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

EXTENSIONS = tuple(extension for format_ in FORMATS for extension in format_.extensions)

_BY_NAME: Mapping[str, Format] = {
    name: format_ for format_ in FORMATS for name in (format_.mime_type, *format_.aliases)
}
_BY_EXTENSION: Mapping[str, Format] = {
    extension: format_ for format_ in FORMATS for extension in format_.extensions
}


def format_of(mime_type: str) -> Format | None:
    """Returns the format of a MIME type; None if the type is unknown.

    The type must be in lower case and without parameters.
    """
    return _BY_NAME.get(mime_type)


def mime_type_of(file_name: str | PurePath) -> str:
    """Returns the MIME type for a file's extension; "" if the extension is unknown.

    If the type is empty, the indexer detects the format from the content.
    """
    known_format = _BY_EXTENSION.get(PurePath(file_name).suffix.lower())
    return "" if known_format is None else known_format.mime_type
