"""Parses PDFs: the text of each page as Markdown, with its sections and tables, and the title.

PDFium is not thread-safe, not even across documents, so only one thread of a process may use this
package. A parser process has only one thread. Every PDFium object is closed explicitly, and none
leaves this package.
"""

from collections.abc import Iterator
from contextlib import closing

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from hrag.values.document_limits import MAX_PAGES
from hrag.values.errors import TooLarge, UnreadableDocument
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.pdf.characters import page_content
from indexer_svc.parsers.pdf.form_values import FormReader
from indexer_svc.parsers.pdf.layout.document_layout import DocumentLayout, PageBlocks
from indexer_svc.parsers.pdf.layout.page_layout import shows_unread_text
from indexer_svc.parsers.pdf.layout.tables import PdfTable
from indexer_svc.parsers.pdf.outline import ARTEFACTS, bookmarks_of
from indexer_svc.parsers.pdf.page_content import PageContent
from indexer_svc.parsers.pdf.page_picture import picture_of
from indexer_svc.parsers.pdf.recognised_content import recognised_content
from indexer_svc.parsers.pdf.tags import TagReader
from indexer_svc.parsers.recognition import PageRecogniser
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.titles import metadata_title

_FIELD = "content"


def parse_pdf(
    content: bytes, max_text_bytes: int, recogniser: PageRecogniser | None = None
) -> ParsedFile:
    """Returns the text of a PDF as Markdown, with its pages, headings and title.

    The title is the one in the document information dictionary (ISO 32000-1, 14.3.3), unless it is
    a placeholder that a program has put there. A PDF that opens with the empty password is read
    like a PDF that is not encrypted. The recogniser reads the pages that show text that cannot be
    read. Without it, or once it is exhausted, such a page has an empty text and is listed in the
    report.

    Raises:
        UnreadableDocument: `content` is encrypted, damaged or not a PDF.
        TooLarge: the PDF has more than MAX_PAGES pages, or more than `max_text_bytes` bytes
            of text in UTF-8.
    """
    try:
        with pdfium.PdfDocument(content) as document:
            page_count = _page_count(document)
            layout = DocumentLayout(page_count, list(bookmarks_of(document)))
            text_bytes = 0
            recognised: set[int] = set()
            for number, page in enumerate(_pages(document, recogniser, recognised), start=1):
                text_bytes += sum(len(run.text.encode()) for run in page.runs)
                text_bytes += sum(len(text.encode()) for text in page.slanted_texts)
                _check_size(text_bytes, number, max_text_bytes)
                layout.add(page)
            title = _title(document)
    except pdfium.PdfiumError as error:
        raise UnreadableDocument(_error_message(error), field=_FIELD) from None
    writer = TextWriter(max_text_bytes)
    for blocks in layout.pages():
        write_page(writer, blocks, is_recognised=blocks.index in recognised)
    return writer.parsed(title)


def _error_message(error: pdfium.PdfiumError) -> str:
    """Returns the message for a client when PDFium refuses a file."""
    if error.err_code == pdfium_c.FPDF_ERR_PASSWORD:
        return "content is an encrypted PDF that needs a password; send it without encryption"
    if error.err_code == pdfium_c.FPDF_ERR_SECURITY:
        return "content is a PDF encrypted in an unknown way; send it without encryption"
    return f"content is not a readable PDF: {error}"


def _page_count(document: pdfium.PdfDocument) -> int:
    """Returns the number of pages. Raises TooLarge for more than MAX_PAGES pages."""
    page_count = len(document)
    if page_count > MAX_PAGES:
        raise TooLarge(
            f"content is a PDF of {page_count} pages; at most {MAX_PAGES} are allowed",
            field=_FIELD,
            limit="document_pages",
        )
    return page_count


def _pages(
    document: pdfium.PdfDocument, recogniser: PageRecogniser | None, recognised: set[int]
) -> Iterator[PageContent]:
    """Yields the content of each page. Adds the indexes of pages with recognised text to a set."""
    has_form = document.get_formtype() != pdfium_c.FORMTYPE_NONE
    forms = FormReader(document) if has_form else None
    tags = TagReader() if document.is_tagged() else None
    for index in range(len(document)):
        try:
            with closing(document[index]) as page:
                content = page_content(page, forms, None if tags is None else tags.tags(page))
                if recogniser and not recogniser.is_exhausted and shows_unread_text(content):
                    content = recognised_content(recogniser.page(picture_of(page)), content)
                    if content.runs:
                        recognised.add(index)
                yield content
        except pdfium.PdfiumError as error:
            raise pdfium.PdfiumError(f"page {index + 1}: {error}", error.err_code) from None


def _check_size(text_bytes: int, page_number: int, max_text_bytes: int) -> None:
    """Raises TooLarge if the pages that have been read have too much text."""
    if text_bytes > max_text_bytes:
        raise TooLarge(
            f"content is a PDF with {text_bytes} bytes of text on its first {page_number} "
            f"pages; HRAG_MAX_DOCUMENT_BYTES allows {max_text_bytes}",
            field=_FIELD,
            limit="document_bytes",
        )


def _title(document: pdfium.PdfDocument) -> str:
    try:
        return metadata_title(document.get_metadata_value("Title").translate(ARTEFACTS))
    except UnicodeDecodeError:  # Half a surrogate pair in the title is no reason to refuse a PDF.
        return ""


def write_page(writer: TextWriter, page: PageBlocks, *, is_recognised: bool = False) -> None:
    """Writes the blocks of a page, and notes what is left out of its text."""
    writer.page(is_recognised=is_recognised)
    if page.is_unread:
        writer.unread_page(page.index + 1)
    for kind, text in page.left_out:
        writer.leave_out(kind, text)
    for block in page.blocks:
        if isinstance(block, PdfTable):
            writer.table(block.rows, header_rows=block.header_rows)
        elif block.heading_depth:
            writer.heading(block.heading_depth, block.text.replace("\n", " "))
        elif block.is_code:
            writer.code(block.text)
        elif block.marker:
            writer.item(block.text.replace("\n", " "), marker=block.marker)
        else:
            writer.paragraph(block.text)
