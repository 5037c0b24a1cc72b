"""The report on a file: which parts of it the indexer has read, and which it has left out."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class PageUnit(StrEnum):
    """The meaning of the page numbers of a document.

    ROW: the numbers of rows in a sheet or a table. SECOND: seconds from the start of a recording.
    """

    PAGE = "page"
    ROW = "row"
    SECOND = "second"


class LeftOutKind(StrEnum):
    """The reason why a part of a file is not in its text.

    METADATA: fields of the file that are not in the document's metadata, because its metadata would
    exceed a limit. SLANTED_TEXT: text in a slanted direction, such as watermarks.
    """

    RUNNING_HEAD = "running_head"
    PAGE_NUMBER = "page_number"
    CONTENTS_PAGE = "contents_page"
    BOILERPLATE = "boilerplate"
    OUTPUT = "output"
    ATTACHMENT = "attachment"
    METADATA = "metadata"
    SLANTED_TEXT = "slanted_text"


class LeftOut(NamedTuple):
    """The parts of one kind that were left out: how many, and the beginning of the first one."""

    kind: LeftOutKind
    part_count: int
    example: str


@dataclass(frozen=True, slots=True)
class ReadReport:
    """A report on what was read of a file.

    `encoding` is the name of a text's encoding, for example `utf-8`, or empty if the file is not a
    text. `is_encoding_guessed` is True if neither the client nor the bytes prove the encoding.
    `mime_type` is the format by which the file was read. `page_unit` says what the pages are.
    Parsers do not set these fields and the counts of pages and sections; extraction sets them.
    `recognised_pages` are the numbers of the pages whose text was recognised in a picture, and
    `unread_pages` are the numbers of the pages that have no readable text, both ascending. `advice`
    says why there are unread pages and what can be done about it; it is empty if there are none.
    """

    encoding: str = ""
    table_count: int = 0
    recognised_pages: tuple[int, ...] = ()
    unread_pages: tuple[int, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    mime_type: str = ""
    is_encoding_guessed: bool = False
    page_count: int = 0
    section_count: int = 0
    page_unit: PageUnit = PageUnit.PAGE
    advice: str = ""


NO_REPORT = ReadReport()
