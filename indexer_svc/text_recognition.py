"""Text recognition as `extract` uses it: the parser of scans, or the reason why there is none."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec

from hrag.config import IndexerSettings
from hrag.values.deadline import Deadline
from hrag.values.formats import OCR_EXTRA
from indexer_svc.parsers.parser_pool import PageWords, Parse, ParserPool, ShowPage, TenantParse

_LIBRARIES = ("rapidocr", "onnxruntime")
_NOT_INSTALLED = f"this indexer has no text recognition; its operator can install it: {OCR_EXTRA}"
_SWITCHED_OFF = "text recognition is switched off in this indexer (HRAG_OCR_MAX_PAGES is 0)"


@dataclass(frozen=True, slots=True)
class CallRecognition:
    """A parser that also recognises text in pictures of pages, for one call.

    `parse` is None if there is no such parser. `advice` says why pages may remain unread, and what
    can be done about it.
    """

    parse: Parse | None
    advice: str


@dataclass(frozen=True, slots=True)
class TextRecognition:
    """The parser that also recognises text in pictures of pages, for the calls of all tenants.

    `parse` is None if there is no text recognition, and so are `page_words`, which finds the words
    of a page, and `show_page`, which shows a page of a picture. At most `max_pages` pages of a
    document are recognised.
    """

    parse: TenantParse | None
    max_pages: int
    page_words: PageWords | None = None
    show_page: ShowPage | None = None

    @property
    def advice(self) -> str:
        """The reason why pages were not recognised, and what can be done about it."""
        if self.parse is not None:
            pages = "1 page" if self.max_pages == 1 else f"{self.max_pages} pages"
            return f"this indexer recognises at most {pages} of a document (HRAG_OCR_MAX_PAGES)"
        return _NOT_INSTALLED if not has_ocr_extra() else _SWITCHED_OFF

    def for_call(self, tenant_id: str, deadline: Deadline) -> CallRecognition:
        """Returns the text recognition for one call of a tenant."""
        parse = None if self.parse is None else partial(self.parse, tenant_id, deadline)
        return CallRecognition(parse, self.advice)


NO_RECOGNITION = TextRecognition(None, 0)


@contextmanager
def open_text_recognition(settings: IndexerSettings) -> Iterator[TextRecognition]:
    """Yields the text recognition; ends its processes afterwards. It starts none in advance."""
    if not has_ocr_extra() or not settings.ocr_max_pages:
        yield NO_RECOGNITION
        return
    pool = ParserPool(
        settings.ocr_processes,
        settings.ocr_memory_bytes,
        settings.ocr_timeout_s,
        max_recognised_pages=settings.ocr_max_pages,
    )
    with closing(pool):
        yield TextRecognition(pool.parse, settings.ocr_max_pages, pool.page_words, pool.show_page)


@cache
def has_ocr_extra() -> bool:
    """Returns True if the libraries of the extra `ocr` are installed. The result is cached."""
    return all(find_spec(name) is not None for name in _LIBRARIES)
