"""Text recognition as the extraction uses it: the parser of scans, or why there is none."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from hrag.values.deadline import Deadline
from hrag.values.formats import OCR_EXTRA
from indexer_svc.parsers.parsed_file import ParsedFile

_LIBRARIES = ("rapidocr", "onnxruntime")
_NOT_INSTALLED = f"this indexer has no text recognition; its operator can install it: {OCR_EXTRA}"
_SWITCHED_OFF = "text recognition is switched off in this indexer (HRAG_OCR_MAX_PAGES is 0)"


@dataclass(frozen=True, slots=True)
class TextRecognition:
    """The parser that also recognises text in pictures of pages, for the calls of all tenants.

    `parse` has the parameters of `extract.TenantParse`; it is None if there is no text recognition.
    At most `max_pages` pages of a document are recognised.
    """

    parse: Callable[[str, Deadline, bytes, str, int], ParsedFile] | None
    max_pages: int

    @property
    def advice(self) -> str:
        """The reason why pages were not recognised, and what can be done about it."""
        if self.parse is not None:
            return (
                f"this indexer recognises at most {self.max_pages} pages of a document "
                "(HRAG_OCR_MAX_PAGES)"
            )
        return _NOT_INSTALLED if not has_ocr_extra() else _SWITCHED_OFF


NO_RECOGNITION = TextRecognition(None, 0)


@cache
def has_ocr_extra() -> bool:
    """Returns True if the libraries of the extra `ocr` are installed. The result is cached."""
    return all(find_spec(name) is not None for name in _LIBRARIES)
