"""The formats of documents: their MIME types and file name extensions.

Clients and the indexer share this table. Only the indexer knows which library reads a format, so a
client needs no library of any format.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from hrag.values.installation import install_command

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
EML = "message/rfc822"
MSG = "application/vnd.ms-outlook"
RTF = "application/rtf"
ODT = "application/vnd.oasis.opendocument.text"
ODP = "application/vnd.oasis.opendocument.presentation"
ODS = "application/vnd.oasis.opendocument.spreadsheet"
XLS = "application/vnd.ms-excel"
NOTEBOOK = "application/x-ipynb+json"
LATEX = "text/x-tex"
JSON = "application/json"
XML = "application/xml"
SRT = "application/x-subrip"
VTT = "text/vtt"
PNG = "image/png"
JPEG = "image/jpeg"
TIFF = "image/tiff"

PICTURES = (PNG, JPEG, TIFF)
"""The formats of pictures of pages, which the indexer reads with the extra `ocr`."""
UNKNOWN_TYPES = ("", "application/octet-stream")
"""MIME types that name no format; the indexer then detects the format."""

FORMATS_EXTRA = install_command("formats")
OCR_EXTRA = install_command("ocr")


@dataclass(frozen=True, slots=True)
class Format:
    """A format of documents: its MIME type and the extensions of its files.

    `aliases` are other MIME types by which clients may name the format. `is_text` is True if files
    of the format are texts in some encoding, so that the format may also be sent as text, not only
    as bytes. `needs_extra` is True if the indexer reads the format with libraries of
    the extra `formats`.
    """

    mime_type: str
    extensions: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    is_text: bool = True
    needs_extra: bool = False

    @property
    def name(self) -> str:
        """The name by which people know the format: its first extension, without the dot."""
        return self.extensions[0].removeprefix(".")


FORMATS = (
    Format(PLAIN_TEXT, (".txt", ".text")),
    Format(MARKDOWN, (".md", ".markdown"), ("text/x-markdown",)),
    Format(PDF, (".pdf",), is_text=False),
    Format(HTML, (".html", ".htm", ".xhtml"), ("application/xhtml+xml",), needs_extra=True),
    Format(DOCX, (".docx",), is_text=False, needs_extra=True),
    Format(PPTX, (".pptx",), is_text=False, needs_extra=True),
    Format(
        XLSX,
        (".xlsx", ".xlsm"),
        ("application/vnd.ms-excel.sheet.macroenabled.12",),
        is_text=False,
        needs_extra=True,
    ),
    Format(XLS, (".xls",), is_text=False, needs_extra=True),
    Format(ODS, (".ods",), is_text=False, needs_extra=True),
    Format(EPUB, (".epub",), is_text=False, needs_extra=True),
    Format(CSV, (".csv",), ("application/csv",)),
    Format(TSV, (".tsv",)),
    Format(RST, (".rst",), ("text/prs.fallenstein.rst",)),
    Format(EML, (".eml",), is_text=False, needs_extra=True),
    Format(MSG, (".msg",), is_text=False, needs_extra=True),
    Format(RTF, (".rtf",), ("text/rtf", "application/x-rtf"), is_text=False),
    Format(ODT, (".odt",), is_text=False),
    Format(ODP, (".odp",), is_text=False),
    Format(NOTEBOOK, (".ipynb",)),
    Format(
        LATEX,
        (".tex", ".latex", ".ltx"),
        ("application/x-tex", "application/x-latex", "text/x-latex"),
        needs_extra=True,
    ),
    Format(
        JSON, (".json", ".jsonl", ".ndjson"), ("text/json", "application/x-ndjson", "text/x-jsonl")
    ),
    Format(XML, (".xml",), ("text/xml",)),
    Format(SRT, (".srt",), ("text/x-subrip", "text/srt", "application/srt")),
    Format(VTT, (".vtt",)),
    Format(PNG, (".png",), is_text=False),
    Format(JPEG, (".jpg", ".jpeg"), ("image/jpg",), is_text=False),
    Format(TIFF, (".tif", ".tiff"), is_text=False),
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


def plain_mime_type(mime_type: str) -> str:
    """Returns a MIME type in lower case, without its parameters, as `format_of` needs it."""
    return mime_type.partition(";")[0].strip().lower()


def format_of(mime_type: str) -> Format | None:
    """Returns the format of a MIME type; None if the type is unknown.

    The type must be in lower case and without parameters.
    """
    return _BY_NAME.get(mime_type)


def format_named(name: str) -> Format | None:
    """Returns the format with a name that people use: an extension, `text` or a MIME type.

    The dot of an extension may be left out, and upper case is allowed. Returns None if the name is
    unknown.
    """
    name = name.strip().lower()
    return _BY_NAME.get(name) or _BY_EXTENSION.get(f".{name.removeprefix('.')}")


def mime_type_of(file_name: str | PurePath) -> str:
    """Returns the MIME type for a file's extension; "" if the extension is unknown.

    The indexer uses the extension only if the content does not show the format.
    """
    known_format = _BY_EXTENSION.get(PurePath(file_name).suffix.lower())
    return "" if known_format is None else known_format.mime_type
