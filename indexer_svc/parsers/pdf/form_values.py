"""Reads the values that were filled into the form of a PDF, and notes that are shown on a page.

PDFium's text of a page contains only the labels of a form, because values are annotations.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

# At most this many annotations of a page are examined.
MAX_PAGE_ANNOTATIONS = 5_000
# At most this many entries of a list are examined.
MAX_OPTIONS = 1_000
# At most this many characters of values are read of a page. All fields may show one long value.
MAX_VALUE_CHARS = 100_000
_HIDDEN = pdfium_c.FPDF_ANNOT_FLAG_HIDDEN | pdfium_c.FPDF_ANNOT_FLAG_NOVIEW
_PASSWORD = 1 << 13
_TEXT_FIELDS = (
    pdfium_c.FPDF_FORMFIELD_TEXTFIELD,
    pdfium_c.FPDF_FORMFIELD_COMBOBOX,
    pdfium_c.FPDF_FORMFIELD_LISTBOX,
)
_LISTS = (pdfium_c.FPDF_FORMFIELD_COMBOBOX, pdfium_c.FPDF_FORMFIELD_LISTBOX)
_BOXES = (pdfium_c.FPDF_FORMFIELD_CHECKBOX, pdfium_c.FPDF_FORMFIELD_RADIOBUTTON)
_CHECKED, _NOT_CHECKED = "\u2612", "\u2610"

_Value = tuple[str, tuple[float, float, float, float]]


class FormReader:
    """Reads the values of the fields of a document's form."""

    def __init__(self, document: pdfium.PdfDocument) -> None:
        """Prepares the form of `document`. Scripts of the form are not run."""
        document.init_forms()
        self._form = document.formenv

    def values(self, page: pdfium.PdfPage) -> list[_Value]:
        """Returns the values on a page, with the left, bottom, right and top of their fields.

        A box to tick has the value \u2612 or \u2610. Values of hidden fields and passwords are
        left out.
        """
        return list(self._values(page))

    def _values(self, page: pdfium.PdfPage) -> Iterator[_Value]:
        if self._form is None:
            return
        count = min(pdfium_c.FPDFPage_GetAnnotCount(page), MAX_PAGE_ANNOTATIONS)
        chars = 0
        for index in range(count):
            annotation = pdfium_c.FPDFPage_GetAnnot(page, index)
            if not annotation:
                continue
            try:
                text = self._text(annotation)
                rectangle = pdfium_c.FS_RECTF()
                chars += len(text)
                if chars > MAX_VALUE_CHARS:
                    return
                if text and pdfium_c.FPDFAnnot_GetRect(annotation, rectangle):
                    x = sorted((rectangle.left, rectangle.right))
                    y = sorted((rectangle.bottom, rectangle.top))
                    yield text, (x[0], y[0], x[1], y[1])
            finally:
                pdfium_c.FPDFPage_CloseAnnot(annotation)

    def _text(self, annotation: pdfium_c.FPDF_ANNOTATION) -> str:
        if pdfium_c.FPDFAnnot_GetSubtype(annotation) != pdfium_c.FPDF_ANNOT_WIDGET:
            return ""
        if pdfium_c.FPDFAnnot_GetFlags(annotation) & _HIDDEN:
            return ""
        kind = pdfium_c.FPDFAnnot_GetFormFieldType(self._form, annotation)
        if kind in _BOXES:
            is_checked = pdfium_c.FPDFAnnot_IsChecked(self._form, annotation)
            return _CHECKED if is_checked else _NOT_CHECKED
        if kind not in _TEXT_FIELDS:
            return ""
        if pdfium_c.FPDFAnnot_GetFormFieldFlags(self._form, annotation) & _PASSWORD:
            return ""
        chosen = self._chosen(annotation) if kind in _LISTS else ""
        return chosen or self._field_value(annotation)

    def _chosen(self, annotation: pdfium_c.FPDF_ANNOTATION) -> str:
        """Returns the chosen entries of a list as they are shown.

        The value of the field is what the form sends, which may be a code, and the first entry
        only.
        """
        count = min(pdfium_c.FPDFAnnot_GetOptionCount(self._form, annotation), MAX_OPTIONS)
        labels = (
            _text_from(partial(pdfium_c.FPDFAnnot_GetOptionLabel, self._form, annotation, index))
            for index in range(count)
            if pdfium_c.FPDFAnnot_IsOptionSelected(self._form, annotation, index)
        )
        return ", ".join(filter(None, labels))

    def _field_value(self, annotation: pdfium_c.FPDF_ANNOTATION) -> str:
        return _text_from(partial(pdfium_c.FPDFAnnot_GetFormFieldValue, self._form, annotation))


def _text_from(read: Callable[..., int]) -> str:
    """Returns the text that a function of PDFium writes; empty if it is not valid UTF-16."""
    length = read(None, 0)
    if length <= 2:
        return ""
    buffer = ctypes.create_string_buffer(length)
    read(ctypes.cast(buffer, ctypes.POINTER(pdfium_c.FPDF_WCHAR)), length)
    with suppress(UnicodeDecodeError):
        return buffer.raw[: length - 2].decode("utf-16-le").strip()
    return ""
