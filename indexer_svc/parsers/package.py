"""Opens Office documents and EPUBs, which are ZIP archives of XML files, with limits.

A part is a file in the archive. Nothing is unpacked before the archive's directory has been
checked: the count of parts, their unpacked size, and whether they are encrypted. `zipfile` reads no
more bytes of a part than the directory says. The unpacked size of all markup together is limited. A
part is markup if its name ends with, for example, `.xml` or `.html`. Any other part is added to
this size when it is read. XML must not declare entities, because an entity could expand to
gigabytes or to the contents of another file.
"""

import codecs
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.parsers import expat
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from hrag.values.document_limits import MAX_ARCHIVE_BYTES, MAX_ARCHIVE_PARTS, MAX_REPEATED_BYTES
from hrag.values.errors import InvalidArgument, TooLarge, UnreadableDocument
from indexer_svc import ole_directory

# A part that is read again counts as at least this many bytes, because opening it takes time too.
_MIN_AGAIN_BYTES = 4096

TITLE = "{http://purl.org/dc/elements/1.1/}title"
"""The element with the title in the metadata of all these formats (Dublin Core)."""

_FIELD = "content"
_MARKUP = (".xml", ".rels", ".xhtml", ".html", ".htm", ".opf", ".ncx", ".bin")
_ENCRYPTED = 0x1
_RUST_PANIC = "PanicException"
_READ_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 20

# The names of files in an archive may be encoded in cp437. Python's codecs are modules. A parser
# process loads this module before it gives up the right to open files, and cannot load any module
# afterwards. So the codec is loaded here.
codecs.lookup("cp437")

Element = ElementTree.Element


@contextmanager
def readable(kind: str) -> Iterator[None]:
    """Converts any error that a library raises for a damaged file into UnreadableDocument.

    InvalidArgument and MemoryError are raised unchanged. `kind` is the name of the format in
    messages, with its article, for example "an EPUB".
    """
    try:
        yield
    except (InvalidArgument, MemoryError):
        raise
    except RecursionError:
        problem = f"content is nested too deeply to be read as {kind}"
        raise UnreadableDocument(problem, field=_FIELD) from None
    except BadZipFile as error:
        problem = f"content is not {kind}, or it is damaged or cut off: {error}"
        raise UnreadableDocument(problem[:500], field=_FIELD) from None
    except BaseException as error:
        # A panic of a library in Rust is not an Exception.
        if not isinstance(error, Exception) and type(error).__name__ != _RUST_PANIC:
            raise
        problem = f"content is not {kind}, or it is damaged: {type(error).__name__}: {error}"
        raise UnreadableDocument(problem[:500], field=_FIELD) from None


class Package:
    """An archive whose directory has been checked. A part is a file in the archive."""

    def __init__(self, content: bytes, kind: str, main_part: str, *other_names: str) -> None:
        """Opens an archive and checks its directory.

        Must be called within `readable`, which converts the errors of a damaged archive. `kind` is
        the name of the format in messages, with its article. The archive must have a part with the
        name `main_part` or one of `other_names`. Raises UnreadableDocument or TooLarge.
        """
        if content.startswith(ole_directory.MAGIC):
            raise UnreadableDocument(
                f"content is not {kind}: it is encrypted, or of an older format; save it without "
                "a password in the current format",
                field=_FIELD,
            )
        self._zip = ZipFile(BytesIO(content))
        self._parts = {part.filename: part for part in self._zip.infolist()}
        self._read: set[str] = set()
        self._again_bytes = 0
        self._counted = {name for name in self._parts if _is_markup(name)}
        self._unpacked_bytes = _check_directory(self._zip.infolist())
        if self._parts.keys().isdisjoint((main_part, *other_names)):
            raise UnreadableDocument(
                f"content is not {kind}: it is an archive without {main_part}", field=_FIELD
            )

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    def markup_names(self) -> list[str]:
        """Returns the names of all parts that are markup."""
        return [name for name in self._parts if _is_markup(name)]

    def markup_with(self, changed: Mapping[str, bytes]) -> bytes:
        """Returns an archive of all markup, with other bytes for the parts in `changed`.

        Raises the errors of `read`.
        """
        archive = BytesIO()
        with ZipFile(archive, "w", ZIP_DEFLATED, compresslevel=1) as copy:
            for name in self.markup_names():
                copy.writestr(name, changed[name] if name in changed else self.read(name))
        return archive.getvalue()

    def read(self, name: str) -> bytes:
        """Returns the unpacked bytes of a part.

        Raises UnreadableDocument if the part is missing. Raises TooLarge if the unpacked markup
        of the archive and the other parts that were read, with this part, have more than
        MAX_ARCHIVE_BYTES bytes in total.
        """
        self._count_again(name)
        return self._zip.read(self._part(name))

    def blocks(self, name: str, end: bytes) -> Iterator[bytes]:
        """Yields the unpacked bytes of a part in blocks of up to 2 * _BLOCK_BYTES.

        Each block except the last one ends before an occurrence of the byte `end`, if there is one
        among _BLOCK_BYTES bytes. Raises UnreadableDocument if the part is missing, or TooLarge.
        """
        rest = b""
        with self._zip.open(self._part(name)) as part:
            while block := part.read(_BLOCK_BYTES):
                stop = block.rfind(end)
                if stop < 0:
                    stop = len(block)
                yield rest + block[:stop]
                rest = block[stop:]
        yield rest

    def xml(self, name: str) -> Element:
        """Returns the root element of a part, which must be XML.

        Raises UnreadableDocument if the part is missing or declares entities. Raises TooLarge if
        the unpacked markup of the archive and the other parts that were read, with this part, have
        more than MAX_ARCHIVE_BYTES bytes in total.
        """
        self._check_entities(name)
        return ElementTree.fromstring(self.read(name))

    def _part(self, name: str) -> ZipInfo:
        """Returns the directory entry of a part that will be read, and counts its unpacked bytes.

        Raises UnreadableDocument if the part is missing. Raises TooLarge if the unpacked markup
        of the archive and the other parts that were read, with this part, have more than
        MAX_ARCHIVE_BYTES bytes in total.
        """
        if name not in self._parts:
            raise UnreadableDocument(f"content lacks its part {name[:200]}", field=_FIELD)
        part = self._parts[name]
        if name not in self._counted:
            unpacked_bytes = self._unpacked_bytes + part.file_size
            _check_unpacked(unpacked_bytes)
            self._unpacked_bytes = unpacked_bytes
            self._counted.add(name)
        return part

    def _count_again(self, name: str) -> None:
        """Counts the bytes of a part that is read again. Raises TooLarge.

        A small archive could otherwise refer to a part thousands of times.
        """
        if name in self._read:
            self._again_bytes += max(self._parts[name].file_size, _MIN_AGAIN_BYTES)
        self._read.add(name)
        if self._again_bytes > MAX_REPEATED_BYTES:
            raise TooLarge(
                f"content is an archive that refers to its part {name[:200]} too often: at most "
                f"{MAX_REPEATED_BYTES:,} bytes of parts are read again",
                field=_FIELD,
                limit="repeated_bytes",
            )

    def _check_entities(self, name: str) -> None:
        """Raises UnreadableDocument if a part of XML declares entities."""

        def refuse(*_declaration: object) -> None:
            raise UnreadableDocument(
                f"content declares XML entities in its part {name[:200]}, which is not allowed",
                field=_FIELD,
            )

        parser = expat.ParserCreate()
        parser.EntityDeclHandler = refuse
        with self._zip.open(self._part(name)) as part:
            while block := part.read(_READ_BYTES):
                parser.Parse(block, False)
        parser.Parse(b"", True)


def _is_markup(name: str) -> bool:
    return name.lower().endswith(_MARKUP)


def _check_directory(parts: list[ZipInfo]) -> int:
    """Checks an archive's directory; returns the unpacked size of all markup in it, in bytes.

    Raises TooLarge if there are too many parts or too much markup. Raises UnreadableDocument if the
    archive is encrypted.
    """
    if len(parts) > MAX_ARCHIVE_PARTS:
        raise TooLarge(
            f"content is an archive of {len(parts)} files; at most {MAX_ARCHIVE_PARTS} are allowed",
            field=_FIELD,
            limit="archive_parts",
        )
    unpacked_bytes = sum(part.file_size for part in parts if _is_markup(part.filename))
    _check_unpacked(unpacked_bytes)
    if any(part.flag_bits & _ENCRYPTED for part in parts):
        raise UnreadableDocument(
            "content is an encrypted archive; send it without a password", field=_FIELD
        )
    return unpacked_bytes


def _check_unpacked(unpacked_bytes: int) -> None:
    if unpacked_bytes > MAX_ARCHIVE_BYTES:
        raise TooLarge(
            f"content is an archive of {unpacked_bytes} bytes of markup when unpacked; at most "
            f"{MAX_ARCHIVE_BYTES} are allowed",
            field=_FIELD,
            limit="archive_bytes",
        )


def resolved(base: str, target: str) -> str:
    """Returns the name of the part (a file in the archive) to which a link leads.

    `base` is the name of the part that contains the link. `target` is the link, relative to `base`.
    The fragment of `target`, from `#` on, is ignored.
    """
    path = unquote(target.partition("#")[0])
    return posixpath.normpath(posixpath.join("/", posixpath.dirname(base), path)).lstrip("/")
