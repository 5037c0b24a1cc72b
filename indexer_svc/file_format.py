"""Detects the format of a file from its bytes, and from its name where the bytes do not show it.

First, signatures: most binary formats begin with fixed bytes. ZIP archives and OLE files contain
files, whose names show the format. A signature decides even if the name shows another format,
because names are often wrong: mail programs, browsers and people rename files.

Second, the beginning of a text: formats such as HTML, RTF, mail and subtitles begin in a way that
ordinary text does not. This decides if the name is unknown or general (`.txt`), or if the name is
the name of a binary format: many files named .xls or .doc are in fact web pages or tables in text.
Names of source code are always right: a template may begin like a web page.

Third, the name. Markdown, CSV and source code are recognised by their names only.

A file of a known format that hrag does not read is refused with advice, and so are bytes that are
neither text nor of a known format. Detection reads the first 4 KB of a text, and looks in an
archive only for names.
"""

import json
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from hrag.values.errors import UnreadableDocument
from hrag.values.formats import (
    CSV,
    DOCX,
    EML,
    EPUB,
    HTML,
    JPEG,
    JSON,
    LATEX,
    MARKDOWN,
    MSG,
    NOTEBOOK,
    ODP,
    ODS,
    ODT,
    PDF,
    PLAIN_TEXT,
    PNG,
    PPTX,
    RST,
    RTF,
    SRT,
    TIFF,
    VTT,
    XLS,
    XLSX,
    XML,
    Format,
    format_of,
    mime_type_of,
)
from indexer_svc import ole_directory
from indexer_svc.text_encoding import is_text

_FIELD = "content"
_PDF_MAGIC, _ZIP_MAGIC = b"%PDF-", b"PK\x03\x04"
# The directory of a ZIP archive is followed by this record, and by a comment of up to 64 KB.
_ZIP_END, _ZIP_END_SEARCHED_BYTES = b"PK\x05\x06", 22 + (1 << 16)
# These formats begin with fixed bytes, except for white space and a byte order mark before RTF.
_SIGNATURES = (
    (_PDF_MAGIC, PDF),
    (b"{\\rtf", RTF),
    (b"\x89PNG\r\n\x1a\n", PNG),
    (b"\xff\xd8\xff", JPEG),
    (b"II*\0", TIFF),
    (b"MM\0*", TIFF),
)
# A PDF may have other bytes before its header; PDF readers search the first KB.
_PDF_SEARCHED_BYTES = 1024

# An EPUB and an OpenDocument file begin with an archive entry that is not compressed: its name is
# `mimetype`, and its content is the format's type. These are the positions in the file.
_MIME_ENTRY, _MIME_START = slice(30, 38), 38
_PACKAGE_TYPES = (EPUB, ODT, ODP, ODS)
_ZIP_TYPES = (*_PACKAGE_TYPES, DOCX, PPTX, XLSX)
# The name of the main part of an Office document shows its format.
_MAIN_PARTS = {
    b"word/document.xml": DOCX,
    b"word/document2.xml": DOCX,  # Word on the Web writes this name.
    b"ppt/presentation.xml": PPTX,
    b"xl/workbook.xml": XLSX,
    b"META-INF/container.xml": EPUB,
}
# The names in the root of an OLE file.
_OLE_NAMES = (
    ("__properties_version1.0", MSG),
    ("Workbook", XLS),
    ("Book", XLS),
)

_CONVERT = "convert it first, for example with: libreoffice --headless --convert-to {} FILE"
_ARCHIVE = (
    "send each file in it as a document; `hrag ingest` and the upload page do this by themselves"
)
_OLD_WORD = f"a Word document of the old format (.doc); {_CONVERT.format('docx')}"
_OLD_POWERPOINT = f"a presentation of the old format (.ppt); {_CONVERT.format('pptx')}"
_ENCRYPTED = "an encrypted Office document; save it without a password"
_RECORDING = "a recording; send a transcript, for example subtitles (.srt, .vtt)"
_PICTURE = "a picture of a format that hrag does not read; save it as PNG, JPEG or TIFF"
_PROGRAM = "a program, not a document"
_OLE_REFUSED = (
    ("WordDocument", _OLD_WORD),
    ("PowerPoint Document", _OLD_POWERPOINT),
    ("EncryptedPackage", _ENCRYPTED),
    ("VisioDocument", "a drawing of Visio; save it as PDF"),
)
_ZIP_REFUSED = (
    (b"Index/Document.iwa", "a document of Pages, Numbers or Keynote; save it as PDF or Office"),
    (b"visio/document.xml", "a drawing of Visio; save it as PDF"),
    (b"xl/workbook.bin", "a binary workbook (.xlsb); save it as .xlsx"),
    (b"classes.dex", _PROGRAM),
    (b"META-INF/MANIFEST.MF", _PROGRAM),
)
# The bytes of formats that are refused: the offset, the bytes, and what the file is. Sources: the
# specifications, and the table of the program `file`.
_REFUSED = (
    (0, _ZIP_END, "an empty ZIP archive"),
    (0, b"\x1f\x8b", f"a GZIP file; {_ARCHIVE}"),
    (257, b"ustar", f"a TAR archive; {_ARCHIVE}"),
    (0, b"BZh", "an archive (BZIP2); unpack it first"),
    (0, b"\xfd7zXZ\0", "an archive (XZ); unpack it first"),
    (0, b"7z\xbc\xaf\x27\x1c", "an archive (7z); unpack it first"),
    (0, b"Rar!\x1a\x07", "an archive (RAR); unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "an archive (Zstandard); unpack it first"),
    (0, b"GIF8", _PICTURE),
    (8, b"WEBP", _PICTURE),
    (0, b"RIFF", _RECORDING),
    (0, b"8BPS", _PICTURE),
    (4, b"ftyphei", _PICTURE),
    (4, b"ftypavif", _PICTURE),
    (0, b"AT&TFORM", "a DjVu file; convert it to PDF"),
    (0, b"ITSF", "a compiled help file (.chm); unpack it to HTML"),
    (4, b"ftyp", _RECORDING),
    (0, b"ID3", _RECORDING),
    (0, b"OggS", _RECORDING),
    (0, b"fLaC", _RECORDING),
    (0, b"\x1aE\xdf\xa3", _RECORDING),
    (0, b"\x7fELF", _PROGRAM),
    (0, b"\xca\xfe\xba\xbe", _PROGRAM),
    (0, b"\0asm", _PROGRAM),
    (0, b"SQLite format 3\0", "a database (SQLite); export its tables, for example as CSV"),
    (4, b"Standard Jet DB", "a database (Access); export its tables, for example as CSV"),
    (4, b"Standard ACE DB", "a database (Access); export its tables, for example as CSV"),
    (0, b"PAR1", "a table (Parquet); export it as CSV"),
    (0, b"wOFF", "a font"),
    (0, b"OTTO", "a font"),
)
# Types that a client may name although hrag does not read them, and what their files are.
REFUSED_TYPES: Mapping[str, str] = {
    "application/msword": _OLD_WORD,
    "application/vnd.ms-powerpoint": _OLD_POWERPOINT,
    "application/zip": f"a ZIP archive; {_ARCHIVE}",
    "application/x-zip-compressed": f"a ZIP archive; {_ARCHIVE}",
    "application/gzip": f"a GZIP file; {_ARCHIVE}",
    "application/x-tar": f"a TAR archive; {_ARCHIVE}",
}

_TEXT_BYTES = 4096
_BLANKS = b"\xef\xbb\xbf \t\r\n"
_HTML = re.compile(
    # Without the atomic group, a text of many comments would take exponential time.
    rb"(?:<\?xml[^>]*>\s*)?(?><!--.{0,2000}?-->\s*)*+<(?:!doctype\s+html|html)[\s>]",
    re.IGNORECASE | re.DOTALL,
)
# How texts of these formats begin.
_TEXT_STARTS = (
    (_HTML, HTML),
    (re.compile(rb"<\?xml\s+version\s*="), XML),
    (re.compile(rb"WEBVTT(?:[ \t\r\n]|\Z)"), VTT),
    (re.compile(rb"\d{1,6}[ \t]*\r?\n\d{1,2}:\d\d:\d\d[,.]\d{1,3}[ \t]*-->"), SRT),
    (re.compile(rb"(?:%[^\n]*\n|\s)*\\document(?:class|style)\s*[\[{]"), LATEX),
)
_NOTEBOOK = re.compile(rb'"(?:nbformat|cells)"\s*:')
_JSON_START = re.compile(rb'[{\[]\s*(?:["{\[}\]\d-]|true|false|null)')
# JSON without a name is recognised by parsing it, up to this size. 256 KB take a few milliseconds.
_MAX_PARSED_JSON_BYTES = 1 << 18
# The header of a mail: lines of fields, of which some are written by programs only.
_FIELD_LINE = re.compile(rb"([A-Za-z][A-Za-z0-9-]{1,60}):|[ \t]")
_MAIL_FIELDS = frozenset((
    b"from", b"to", b"cc", b"subject", b"date", b"sender", b"reply-to", b"return-path", b"received",
    b"message-id", b"mime-version", b"content-type", b"delivered-to", b"dkim-signature",
))  # fmt: skip
_MAIL_PROGRAM_FIELDS = frozenset((
    b"return-path", b"received", b"message-id", b"mime-version", b"content-type", b"delivered-to",
    b"dkim-signature",
))  # fmt: skip
_MIN_MAIL_FIELDS = 3
_TABLE_TYPES = (XLS, XLSX, ODS)
_TABLE_SEPARATORS = (b"\t", b";", b",")


def detect(content: bytes, name: str = "") -> str:
    """Returns the MIME type of a file.

    `name` is the file's name, a path or a URL, or empty. Raises UnreadableDocument if the file is
    of a format that is not read, or of no known format.
    """
    named = mime_type_of(_path_of(name))
    if by_content := _by_signature(content, named):
        return by_content
    _check_known(content)
    if _PDF_MAGIC in content[:_PDF_SEARCHED_BYTES] and (named == PDF or not is_text(content)):
        return PDF
    named_format = format_of(named)
    if named_format is not None and not named_format.is_text:
        return _of_binary_name(content, named_format)
    if not named or named == PLAIN_TEXT:
        return _by_text(content) or named or PLAIN_TEXT
    if _may_be_web_page(named) and _HTML.match(_start_of(content)):
        return HTML
    return named


def _path_of(name: str) -> str:
    """Returns the path in a URL, without query and fragment, or any other name unchanged."""
    if "://" not in name:
        return name
    try:
        return urlsplit(name).path
    except ValueError:
        return ""


def _may_be_web_page(mime_type: str) -> bool:
    """Returns True if files with names of this type, such as .md and .xml, are often web pages."""
    return mime_type in (MARKDOWN, RST, XML, CSV)


def _start_of(content: bytes) -> bytes:
    """Returns the first 4 KB of a text in an encoding that contains ASCII, from its first word."""
    return content[:_TEXT_BYTES].lstrip(_BLANKS)


def _by_signature(content: bytes, named: str) -> str:
    start = _start_of(content)
    for signature, mime_type in _SIGNATURES:
        if content.startswith(signature) or (mime_type == RTF and start.startswith(signature)):
            return mime_type
    if content.startswith(_ZIP_MAGIC):
        return _detect_archive(content, named)
    if content.startswith(ole_directory.MAGIC):
        return _detect_ole(content)
    return ""


def _detect_archive(content: bytes, named: str) -> str:
    """Returns the format of an archive, by the first name of a main part that appears in it.

    In an archive, the name of a part is before the part's bytes. So the name of the real main part
    comes before any such name inside its bytes. An archive that is cut off before this name has
    the format of its name, whose parser reports the damage. Raises UnreadableDocument for another
    archive.
    """
    if content[_MIME_ENTRY] == b"mimetype":
        for mime_type in _PACKAGE_TYPES:
            if content.startswith(mime_type.encode(), _MIME_START):
                return mime_type
    positions = {content.find(part): mime_type for part, mime_type in _MAIN_PARTS.items()}
    positions.pop(-1, None)
    if positions:
        return positions[min(positions)]
    if _ZIP_END not in content[-_ZIP_END_SEARCHED_BYTES:]:
        if named in _ZIP_TYPES:
            return named
        raise _refusal("a ZIP archive that is damaged or cut off")
    for part, meaning in _ZIP_REFUSED:
        if part in content:
            raise _refusal(meaning)
    raise _refusal(f"a ZIP archive; {_ARCHIVE}")


def _detect_ole(content: bytes) -> str:
    names = ole_directory.root_names(content)
    for name, mime_type in _OLE_NAMES:
        if name in names:
            return mime_type
    for name, meaning in _OLE_REFUSED:
        if name in names:
            raise _refusal(meaning)
    raise _refusal("a file of an old Office program; save it in a current format")


def _check_known(content: bytes) -> None:
    """Raises UnreadableDocument for a known format that is not read."""
    for offset, signature, meaning in _REFUSED:
        # Short signatures could begin a text, for example "BZh" or "ID3".
        if content.startswith(signature, offset) and not is_text(content):
            raise _refusal(meaning)


def _refusal(meaning: str) -> UnreadableDocument:
    return UnreadableDocument(f"content is {meaning}", field=_FIELD)


def _of_binary_name(content: bytes, named_format: Format) -> str:
    """Returns the format of a file that is named like a binary format but has no signature.

    If the file is no text, the parser of the named format reports what is wrong. Raises
    UnreadableDocument for a text of unknown format.
    """
    named = named_format.mime_type
    if named == EML or not content.strip(_BLANKS):
        return named
    if not is_text(content):
        return named
    if by_text := _by_text(content):
        return by_text
    if named in _TABLE_TYPES and _is_table(content):
        return CSV
    raise UnreadableDocument(
        "content is a text, although its name says that it is a "
        f"{named_format.extensions[0]} file; mime_type text/plain reads it as text",
        field="mime_type",
    )


def _is_table(content: bytes) -> bool:
    """Returns True if the first two lines of a text have the same separator equally often."""
    lines = _start_of(content).splitlines()[:2]
    return any(
        len({line.count(separator) for line in lines}) == 1 and separator in lines[0]
        for separator in _TABLE_SEPARATORS
    )


def _by_text(content: bytes) -> str:
    """Returns the format that the beginning of a text shows; empty for ordinary text."""
    start = _start_of(content)
    for pattern, mime_type in _TEXT_STARTS:
        if pattern.match(start):
            return mime_type
    return EML if _is_mail(start) else _detect_json(content, start)


def _is_mail(start: bytes) -> bool:
    """Returns True if a text begins with the header of a mail (RFC 5322)."""
    names = set()
    for line in start.splitlines():
        if not line:
            break
        field = _FIELD_LINE.match(line)
        if field is None:
            return False
        if field[1]:
            names.add(field[1].lower())
    return len(names & _MAIL_FIELDS) >= _MIN_MAIL_FIELDS and bool(names & _MAIL_PROGRAM_FIELDS)


def _detect_json(content: bytes, start: bytes) -> str:
    if not _JSON_START.match(start):
        return ""
    if start.startswith(b"{") and _NOTEBOOK.search(start) and b'"nbformat"' in content:
        return NOTEBOOK
    if len(content) > _MAX_PARSED_JSON_BYTES:
        return ""
    try:
        json.loads(content.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError):
        return ""
    return JSON
