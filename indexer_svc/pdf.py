"""Reads the text of a PDF's pages with PDFium.

PDFium may be used by one thread at a time, in the whole process: one lock guards it.
"""

import threading

import pypdfium2
import pypdfium2.raw as pdfium

from hrag.errors import BlankDocument, TooLarge, UnreadableDocument

_lock = threading.Lock()

# What PDFium gives for a hyphen at a line's end, for no character, and NUL.
_ARTEFACTS = {0xFFFE: None, 0xFFFF: None, 0x0002: None, 0x0000: None}


def read_pages(content: bytes, max_pages: int) -> list[str]:
    """Each page's text, in order.

    Raises UnreadableDocument if the PDF is broken or encrypted, TooLarge if it has over
    `max_pages` pages, BlankDocument if it has no text at all.
    """
    with _lock:
        try:
            pages = _read(content, max_pages)
        except pypdfium2.PdfiumError as error:
            raise _explain(error) from None
    if not any(page.strip() for page in pages):
        raise BlankDocument(
            f"content is a PDF of {len(pages)} pages without text; it may be a scan",
            field="content",
        )
    return pages


def _read(content: bytes, max_pages: int) -> list[str]:
    document = pypdfium2.PdfDocument(content)
    try:
        if len(document) > max_pages:
            raise TooLarge(
                f"content has {len(document)} pages; at most {max_pages} are allowed",
                field="content",
            )
        return [_page_text(document, number) for number in range(len(document))]
    finally:
        document.close()


def _page_text(document: pypdfium2.PdfDocument, number: int) -> str:
    page = document[number]
    try:
        text_page = page.get_textpage()
        try:
            text: str = text_page.get_text_bounded()
        finally:
            text_page.close()
    finally:
        page.close()
    return text.replace("\r\n", "\n").translate(_ARTEFACTS)


def _explain(error: pypdfium2.PdfiumError) -> UnreadableDocument:
    if error.err_code == pdfium.FPDF_ERR_PASSWORD:
        problem = "content is an encrypted PDF; send it without a password"
    else:
        problem = f"content is not a readable PDF: {error}"
    return UnreadableDocument(problem, field="content")
