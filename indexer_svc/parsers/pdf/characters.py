"""Reads the characters, the ruled lines and the form values of a page with PDFium.

A call of PDFium through ctypes takes about half a microsecond, and a page has thousands of
characters. So only what differs between the characters of a run is read for each character: its
box. The objects that drew the characters are read at the ends of each word, because most words are
drawn by one object. The text of a page is read with one call.

PDFium's coordinates are those of the file: y grows upwards, and the rotation of the page is not
applied. They become coordinates of the frame of the text here. A direction is a number of quarter
turns to the left: the text of direction 1 runs upwards in the coordinates of the file.
"""

import ctypes
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from indexer_svc.parsers.pdf.form_values import FormReader
from indexer_svc.parsers.pdf.page_content import (
    Font,
    FormValue,
    GlyphRun,
    PageContent,
    RuledLine,
    Tag,
)

# The places of the characters of a page are read up to this many. The densest pages of newspapers
# have a third. Of a page with more characters, only the text is read.
MAX_PAGE_CHARS = 100_000
_PLAIN_SIZE = 10.0
_PLAIN_PITCH = 12.0
# At most this many objects and path segments of a page are examined for ruled lines. Maps and
# plots have more, but no tables.
MAX_PAGE_OBJECTS = 20_000
_MAX_PATH_SEGMENTS = 8_000
_MAX_FORM_DEPTH = 4
# A drawn shape that is at most this thick, in points, is a line.
_MAX_RULE_THICKNESS = 3.0
_MIN_RULE_LENGTH = 3.0
# A page without text that has this many drawn shapes may show text as shapes.
_MIN_TEXT_SHAPES = 50
_MIN_PICTURE_SIDE = 20.0
_BOLD_WEIGHT = 600
_FLAG_FIXED, _FLAG_ITALIC, _FLAG_BOLD = 1, 1 << 6, 1 << 18
_FILL_AND_STROKE = 2

# `Medi` is the bold face of Nimbus Roman, which TeX has as Times. The names of Linux Libertine end
# with one letter for the face.
_BOLD_NAME = re.compile(
    r"bold|black|heavy|demi(?!ng)|-medi(?!um)|-b(?![a-z])|cmb|cmssbx|sfbx|sfb[0-9]|ecbx|\bbd"
    r"|lin(?:libertine|biolinum)[to][bz]",
    re.IGNORECASE,
)
_ITALIC_NAME = re.compile(r"ital|obli|slant|cmti|cmsl|sfti|-i(?![a-z])", re.IGNORECASE)
# `NimbusMonL` and `t1xtt` are what LaTeX has as Courier.
_FIXED_NAME = re.compile(
    r"mono|monaco|nimbusmon|courier|cmtt|cmsltt|sftt|ectt|cmvtt|consol|menlo|typewriter|inconsolata"
    r"|fixed|lmtt|tt10|t(?:1|y|c)?xb?tt|source ?code|fira ?code|letter ?gothic|andale",
    re.IGNORECASE,
)
# PDFium computes the weight of a font from the width of its stems, which is wrong in many files. So
# a name that says something counts more.
_FAMILY_NAME = re.compile(r"[A-Za-z]{3}")
_SUBSET_PREFIX = re.compile(r"^[A-Z]{6}\+")
_WORD = re.compile(r"\S+")
# PDFium has these in place of a hyphen at the end of a line.
_HYPHENS = str.maketrans({"\x02": "-", "\ufffe": "-", "\u00ad": "-", "\u2010": "-", "\u2011": "-"})
# A private-use character of a symbol font that shows a bullet.
_BULLETS = str.maketrans({"\uf0b7": "\u2022", "\uf0a7": "\u2022", "\uf0d8": "\u2022"})
# These characters stand for glyphs whose character is unknown.
NOISE = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ue000-\uf8ff\ufffd\uffff]")
_UNMAPPED = "\ufffd"
# One of so many characters is asked whether the font says what it is.
_MAPPING_STRIDE = 16

_Address = ctypes.c_void_p


def _fast(function: Any, result: Any, *arguments: Any) -> Callable[..., Any]:
    """Returns a function of PDFium that takes plain addresses, which are converted faster."""
    address = ctypes.cast(function, _Address).value
    prototype = ctypes.PYFUNCTYPE(result, *arguments)
    fast: Callable[..., Any] = prototype(address or 0)
    return fast


_int = ctypes.c_int
_count_chars = _fast(pdfium_c.FPDFText_CountChars, _int, _Address)
_read_text = _fast(pdfium_c.FPDFText_GetText, _int, _Address, _int, _int, _Address)
_read_font = _fast(
    pdfium_c.FPDFText_GetFontInfo,
    *(ctypes.c_ulong, _Address, _int, _Address, ctypes.c_ulong, _Address),
)
_count_objects = _fast(pdfium_c.FPDFPage_CountObjects, _int, _Address)
_read_box = _fast(pdfium_c.FPDFText_GetLooseCharBox, _int, _Address, _int, _Address)
_read_origin = _fast(pdfium_c.FPDFText_GetCharOrigin, _int, _Address, _int, _Address, _Address)
_read_matrix = _fast(pdfium_c.FPDFText_GetMatrix, _int, _Address, _int, _Address)
_text_object = _fast(pdfium_c.FPDFText_GetTextObject, _Address, _Address, _int)
_code_point = _fast(pdfium_c.FPDFText_GetUnicode, ctypes.c_uint, _Address, _int)
_is_unmapped = _fast(pdfium_c.FPDFText_HasUnicodeMapError, _int, _Address, _int)
_font_size = _fast(pdfium_c.FPDFText_GetFontSize, ctypes.c_double, _Address, _int)
_font_weight = _fast(pdfium_c.FPDFText_GetFontWeight, _int, _Address, _int)
_font_of = _fast(pdfium_c.FPDFTextObj_GetFont, _Address, _Address)
_render_mode = _fast(pdfium_c.FPDFTextObj_GetTextRenderMode, _int, _Address)
_mark_of = _fast(pdfium_c.FPDFPageObj_GetMarkedContentID, _int, _Address)
_object_type = _fast(pdfium_c.FPDFPageObj_GetType, _int, _Address)
_page_object = _fast(pdfium_c.FPDFPage_GetObject, _Address, _Address, _int)
_form_object = _fast(pdfium_c.FPDFFormObj_GetObject, _Address, _Address, ctypes.c_ulong)
_count_form_objects = _fast(pdfium_c.FPDFFormObj_CountObjects, _int, _Address)
_read_bounds = _fast(pdfium_c.FPDFPageObj_GetBounds, _int, *[_Address] * 5)
_read_object_matrix = _fast(pdfium_c.FPDFPageObj_GetMatrix, _int, _Address, _Address)
_read_draw_mode = _fast(pdfium_c.FPDFPath_GetDrawMode, _int, _Address, _Address, _Address)
_count_segments = _fast(pdfium_c.FPDFPath_CountSegments, _int, _Address)
_path_segment = _fast(pdfium_c.FPDFPath_GetPathSegment, _Address, _Address, _int)
_segment_type = _fast(pdfium_c.FPDFPathSegment_GetType, _int, _Address)
_segment_closes = _fast(pdfium_c.FPDFPathSegment_GetClose, _int, _Address)
_read_point = _fast(pdfium_c.FPDFPathSegment_GetPoint, _int, _Address, _Address, _Address)

_Matrix = tuple[float, float, float, float, float, float]
_IDENTITY: _Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)
_Box = tuple[float, float, float, float]


class _RunStyle(NamedTuple):
    """The properties that the characters of one object share."""

    font: Font
    size: float
    direction: int
    mark: int


def page_content(
    page: pdfium.PdfPage, forms: FormReader | None = None, tags: dict[int, Tag] | None = None
) -> PageContent:
    """Returns the content of a page. Raises PdfiumError if the page cannot be read.

    `forms` reads the values of forms; None if the file has no form. `tags` are the tags of the
    page, by the number of their marked content; None if the file is not tagged.
    """
    box = _page_box(page)
    handle = _address(page)
    text_page = page.get_textpage()
    try:
        text_handle = _address(text_page)
        count = _count_chars(text_handle)
        if count > MAX_PAGE_CHARS:
            return _plain_content(_text(text_handle, count))
        runs, slanted_texts = _runs(text_handle, max(0, count), tags is not None)
    finally:
        text_page.close()
    direction = _main_direction(runs, page)
    rules, picture_count, shape_count = _drawings(handle, box, direction)
    values = [] if forms is None else forms.values(page)
    width, height = box[2] - box[0], box[3] - box[1]
    return PageContent(
        width if direction % 2 == 0 else height,
        height if direction % 2 == 0 else width,
        [_framed(run, style, box, direction) for run, style in runs],
        rules,
        [FormValue(text, *_framed_box(value_box, box, direction)) for text, value_box in values],
        tags,
        has_pictures=picture_count > 0 or shape_count >= _MIN_TEXT_SHAPES,
        slanted_texts=slanted_texts,
        direction=direction,
    )


def shown_box(page: pdfium.PdfPage, inner: _Box, direction: int) -> _Box:
    """Returns a box as a reader sees it on the page, as fractions of the page's sides.

    `inner` and the result are left, top, right and bottom. `inner` is in the frame of `direction`,
    as the content of the page is. In the result, the rotation of the page is applied.
    """
    box = _page_box(page)
    rotation = int(pdfium_c.FPDFPage_GetRotation(page)) % 4
    left, top, right, bottom = _framed_box(_in_file(inner, box, direction), box, rotation)
    width, height = box[2] - box[0], box[3] - box[1]
    if rotation % 2:
        width, height = height, width
    return left / width, top / height, right / width, bottom / height


def _in_file(inner: _Box, box: _Box, direction: int) -> _Box:
    """Returns the box of which `_framed_box` returns `inner`."""
    left, bottom, right, top = box
    x0, y0, x1, y1 = inner
    if direction == 0:
        return left + x0, top - y1, left + x1, top - y0
    if direction == 1:
        return left + y0, bottom + x0, left + y1, bottom + x1
    if direction == 2:
        return right - x1, bottom + y0, right - x0, bottom + y1
    return right - y1, top - x1, right - y0, top - x0


def _address(handle: Any) -> int:
    return ctypes.cast(handle.raw, _Address).value or 0


def _page_box(page: pdfium.PdfPage) -> _Box:
    """Returns left, bottom, right and top of the visible part of a page."""
    rectangle = pdfium_c.FS_RECTF()
    if not pdfium_c.FPDF_GetPageBoundingBox(page, rectangle):
        return 0.0, 0.0, 612.0, 792.0
    return rectangle.left, rectangle.bottom, rectangle.right, rectangle.top


class _RawRun(NamedTuple):
    """Characters of one object, in the coordinates of the file."""

    text: str
    boxes: Sequence[float]
    origin: tuple[float, float]


def _plain_content(text: str) -> PageContent:
    """Returns a page with these lines of text below each other, whatever their places are."""
    runs = []
    for index, line in enumerate(text.splitlines(), start=1):
        y = index * _PLAIN_PITCH
        starts = [at * _PLAIN_SIZE / 2 for at in range(len(line))]
        ends = [start + _PLAIN_SIZE / 2 for start in starts]
        top, bottom = y - 0.8 * _PLAIN_SIZE, y + 0.2 * _PLAIN_SIZE
        runs.append(GlyphRun(line, starts, ends, top, bottom, y, _PLAIN_SIZE, Font("")))
    width = max((run.ends[-1] for run in runs if run.text), default=0.0)
    return PageContent(width, (len(runs) + 1) * _PLAIN_PITCH, runs, has_places=False)


def _runs(
    text_page: int, count: int, is_tagged: bool
) -> tuple[list[tuple[_RawRun, _RunStyle]], list[str]]:
    """Returns the runs of a page of `count` characters, and the texts in a slanted direction.

    Both are in the order in which PDFium has them.
    """
    text = _text(text_page, count)
    box_array = (ctypes.c_float * (4 * count))()
    address = ctypes.addressof(box_array)
    steps = range(address, address + 16 * count, 16)
    # The map makes one call for each character; its results say only that there is a box.
    list(map(_read_box, repeat(text_page), range(count), steps))
    boxes: list[float] = box_array[:]
    styles = _StyleReader(text_page, is_tagged)
    runs: list[tuple[_RawRun, _RunStyle]] = []
    slanted: list[tuple[int, int]] = []
    continues_slanted = False
    for start, end, text_object in _spans_of_objects(text_page, text):
        if not text_object:
            continue
        style = styles.style(text_object, start)
        if style is not None:
            run = _RawRun(text[start:end], boxes[4 * start : 4 * end], styles.origin(start))
            runs.append((run, style))
        else:  # Several objects may draw one text.
            first = slanted.pop()[0] if continues_slanted else start
            slanted.append((first, end))
        continues_slanted = style is None
    return runs, [text[start:end] for start, end in slanted]


def _text(text_page: int, count: int) -> str:
    """Returns the characters of a page, one for each character that PDFium counts."""
    buffer = (ctypes.c_ushort * (count + 1))()
    length = _read_text(text_page, 0, count, ctypes.addressof(buffer))
    text = bytes(buffer)[: 2 * max(0, length - 1)].decode("utf-16-le", "replace")
    if len(text) != count:  # A character is missing, or has two UTF-16 code units.
        codes = map(_code_point, repeat(text_page), range(count))
        text = "".join(chr(code) if _is_scalar(code) else _UNMAPPED for code in codes)
    text = text.translate(_HYPHENS)
    if 1 in map(_is_unmapped, repeat(text_page), range(0, count, _MAPPING_STRIDE)):
        unmapped = map(_is_unmapped, repeat(text_page), range(count))
        text = "".join(
            _UNMAPPED if is_unmapped == 1 and not character.isspace() else character
            for character, is_unmapped in zip(text, unmapped, strict=True)
        )
    return text.translate(_BULLETS) if NOISE.search(text) else text


def _is_scalar(code: int) -> bool:
    return 0 < code < 0xD800 or 0xDFFF < code < 0x110000


def _spans_of_objects(text_page: int, text: str) -> Iterator[tuple[int, int, int]]:
    """Yields the first index, the end and the object of characters that one object drew.

    A span begins and ends with a visible character. White space between words is part of the span.
    """
    start, end, current = 0, 0, -1
    for match in _WORD.finditer(text):
        first, after = match.span()
        drawn_by = _text_object(text_page, first) or 0
        last = drawn_by if after - first == 1 else _text_object(text_page, after - 1) or 0
        if drawn_by == last:
            if drawn_by == current:
                end = after
                continue
            if end > start:
                yield start, end, current
            start, end, current = first, after, drawn_by
            continue
        for index in range(first, after):
            drawn_by = _text_object(text_page, index) or 0
            if drawn_by == current:
                end = index + 1
                continue
            if end > start:
                yield start, end, current
            start, end, current = index, index + 1, drawn_by
    if end > start:
        yield start, end, current


class _StyleReader:
    """Reads what the characters of an object have in common."""

    def __init__(self, text_page: int, is_tagged: bool) -> None:
        self._text_page = text_page
        self._is_tagged = is_tagged
        self._fonts: dict[tuple[int, bool], Font] = {}
        self._matrix = (ctypes.c_float * 6)()
        self._matrix_address = ctypes.addressof(self._matrix)
        self._point = (ctypes.c_double * 2)()
        self._point_address = ctypes.addressof(self._point)

    def style(self, text_object: int, index: int) -> _RunStyle | None:
        """Returns the style of the object that drew the character at `index`.

        Returns None if the text of the object runs in a slanted direction.
        """
        _read_matrix(self._text_page, index, self._matrix_address)
        a, b, c, d = self._matrix[:4]
        direction = _direction(a, b)
        if direction is None:
            return None
        size = _font_size(self._text_page, index) * math.hypot(c, d)
        is_stroked = _render_mode(text_object) == _FILL_AND_STROKE
        key = _font_of(text_object) or 0, is_stroked
        font = self._fonts.get(key)
        if font is None:
            font = self._fonts[key] = self._font(index, is_stroked)
        mark = _mark_of(text_object) if self._is_tagged else -1
        return _RunStyle(font, round(size, 2) or 1.0, direction, mark)

    def origin(self, index: int) -> tuple[float, float]:
        """Returns the point of the baseline at which a character begins."""
        _read_origin(self._text_page, index, self._point_address, self._point_address + 8)
        return self._point[0], self._point[1]

    def _is_heavy(self, index: int) -> bool:
        return bool(_font_weight(self._text_page, index) > _BOLD_WEIGHT)

    def _font(self, index: int, is_stroked: bool) -> Font:
        flags = ctypes.c_int()
        buffer = ctypes.create_string_buffer(256)
        length = _read_font(
            *(self._text_page, index, ctypes.addressof(buffer), 256, ctypes.addressof(flags))
        )
        raw = buffer.raw[: max(0, min(length, 256) - 1)]
        name = _SUBSET_PREFIX.sub("", raw.decode("utf-8", "replace"))
        is_bold = bool(_BOLD_NAME.search(name)) or is_stroked or bool(flags.value & _FLAG_BOLD)
        return Font(
            name,
            is_bold or (self._is_heavy(index) and not _FAMILY_NAME.search(name)),
            bool(_ITALIC_NAME.search(name)) or bool(flags.value & _FLAG_ITALIC),
            bool(_FIXED_NAME.search(name)) or bool(flags.value & _FLAG_FIXED),
        )


def _direction(a: float, b: float) -> int | None:
    """Returns the direction of text with the matrix elements a and b, or None if it is slanted."""
    if abs(b) <= abs(a) * 0.2:
        return 0 if a >= 0 else 2
    if abs(a) <= abs(b) * 0.2:
        return 1 if b > 0 else 3
    return None


def _main_direction(runs: Sequence[tuple[_RawRun, _RunStyle]], page: pdfium.PdfPage) -> int:
    """Returns the direction of most characters, or the upright one of a page without text."""
    counts: Counter[int] = Counter()
    for run, style in runs:
        counts[style.direction] += len(run.text)
    if counts:
        return max(counts, key=counts.__getitem__)
    return int(pdfium_c.FPDFPage_GetRotation(page)) % 4


def _framed(run: _RawRun, style: _RunStyle, box: _Box, main_direction: int) -> GlyphRun:
    """Returns a run in the frame in which it is upright."""
    left, bottom, right, top = box
    direction = style.direction
    lefts, tops, rights, bottoms = (run.boxes[side::4] for side in range(4))
    x, y = run.origin
    if direction == 0:
        # The box of a page begins at 0 in nearly every file.
        starts = [value - left for value in lefts] if left else lefts
        ends = [value - left for value in rights] if left else rights
        upper, lower, baseline = top - tops[0], top - bottoms[0], top - y
    elif direction == 1:
        starts = [value - bottom for value in bottoms]
        ends = [value - bottom for value in tops]
        upper, lower, baseline = lefts[0] - left, rights[0] - left, x - left
    elif direction == 2:
        starts, ends = [right - value for value in rights], [right - value for value in lefts]
        upper, lower, baseline = bottoms[0] - bottom, tops[0] - bottom, y - bottom
    else:
        starts, ends = [top - value for value in tops], [top - value for value in bottoms]
        upper, lower, baseline = right - rights[0], right - lefts[0], right - x
    angle = (direction - main_direction) % 4 * 90
    return GlyphRun(
        run.text, starts, ends, upper, lower, baseline, style.size, style.font, angle, style.mark
    )


def _framed_box(inner: _Box, box: _Box, direction: int) -> _Box:
    """Returns left, top, right and bottom of a box in the frame of a direction.

    `inner` and `box` are left, bottom, right and top in the coordinates of the file.
    """
    left, bottom, right, top = box
    x0, y0, x1, y1 = inner
    if direction == 0:
        return x0 - left, top - y1, x1 - left, top - y0
    if direction == 1:
        return y0 - bottom, x0 - left, y1 - bottom, x1 - left
    if direction == 2:
        return right - x1, y0 - bottom, right - x0, y1 - bottom
    return top - y1, right - x1, top - y0, right - x0


def _drawings(page: int, box: _Box, direction: int) -> tuple[list[RuledLine], int, int]:
    """Returns the ruled lines of a page, and how many pictures and drawn shapes it has."""
    reader = _DrawingReader()
    count = _count_objects(page)
    reader.read([_page_object(page, index) for index in range(min(count, MAX_PAGE_OBJECTS))])
    rules = []
    for line in reader.lines:
        framed = _framed_box(line, box, direction)
        if framed[2] > 0 and framed[3] > 0:
            rules.append(RuledLine(*framed))
    return rules, reader.picture_count, reader.shape_count


class _DrawingReader:
    """Collects the lines and the edges of rectangles among the objects of a page."""

    def __init__(self) -> None:
        # Each line is left, bottom, right and top in the coordinates of the file.
        self.lines: list[_Box] = []
        self.picture_count = 0
        self.shape_count = 0
        self._object_count = 0
        self._segment_count = 0
        self._floats = (ctypes.c_float * 6)()
        first = ctypes.addressof(self._floats)
        self._addresses = [first + 4 * index for index in range(4)]
        self._ints = (ctypes.c_int * 2)()
        self._int_addresses = [ctypes.addressof(self._ints), ctypes.addressof(self._ints) + 4]

    def read(self, objects: Sequence[int]) -> None:
        """Reads objects of a page, and the objects of the forms among them."""
        waiting = [(objects, _IDENTITY, 0)]
        while waiting:
            level, matrix, depth = waiting.pop()
            for page_object in level:
                self._object_count += 1
                if self._object_count > MAX_PAGE_OBJECTS:
                    return
                kind = _object_type(page_object)
                if kind == pdfium_c.FPDF_PAGEOBJ_PATH:
                    self._read_path(page_object, matrix)
                elif kind == pdfium_c.FPDF_PAGEOBJ_IMAGE:
                    self._read_picture(page_object, matrix)
                elif kind == pdfium_c.FPDF_PAGEOBJ_FORM and depth < _MAX_FORM_DEPTH:
                    children = self._children(page_object)
                    waiting.append((children, self._inner_matrix(page_object, matrix), depth + 1))

    def _children(self, form: int) -> list[int]:
        count = min(_count_form_objects(form), MAX_PAGE_OBJECTS)
        return [_form_object(form, index) for index in range(max(0, count))]

    def _inner_matrix(self, page_object: int, outer: _Matrix) -> _Matrix:
        """Returns the matrix for the coordinates inside a form or path."""
        if not _read_object_matrix(page_object, self._addresses[0]):
            return outer
        a, b, c, d, e, f = self._floats[:]
        oa, ob, oc, od, oe, of = outer
        return (
            *(a * oa + b * oc, a * ob + b * od, c * oa + d * oc, c * ob + d * od),
            *(e * oa + f * oc + oe, e * ob + f * od + of),
        )

    def _bounds(self, page_object: int, matrix: _Matrix) -> _Box | None:
        if not _read_bounds(page_object, *self._addresses):
            return None
        x0, y0, x1, y1 = self._floats[:4]
        if matrix is _IDENTITY:
            return x0, y0, x1, y1
        return _box_of(_moved(x0, y0, matrix), _moved(x1, y1, matrix))

    def _read_picture(self, page_object: int, matrix: _Matrix) -> None:
        bounds = self._bounds(page_object, matrix)
        if bounds is not None:
            width, height = bounds[2] - bounds[0], bounds[3] - bounds[1]
            self.picture_count += width >= _MIN_PICTURE_SIDE and height >= _MIN_PICTURE_SIDE

    def _read_path(self, path: int, matrix: _Matrix) -> None:
        self.shape_count += 1
        bounds = self._bounds(path, matrix)
        if bounds is None:
            return
        width, height = bounds[2] - bounds[0], bounds[3] - bounds[1]
        if max(width, height) < _MIN_RULE_LENGTH:
            return
        _read_draw_mode(path, *self._int_addresses)
        if not any(self._ints[:]):  # The path only limits what is drawn.
            return
        if min(width, height) <= _MAX_RULE_THICKNESS:
            self.lines.append(_thin(bounds))
            return
        segment_count = _count_segments(path)
        self._segment_count += segment_count
        if self._segment_count <= _MAX_PATH_SEGMENTS:
            self._read_segments(path, segment_count, self._inner_matrix(path, matrix))

    def _read_segments(self, path: int, count: int, matrix: _Matrix) -> None:
        """Adds the horizontal and vertical lines of a path."""
        previous = first = (0.0, 0.0)
        x_address, y_address = self._addresses[:2]
        for index in range(count):
            segment = _path_segment(path, index)
            kind = _segment_type(segment)
            _read_point(segment, x_address, y_address)
            point = _moved(self._floats[0], self._floats[1], matrix)
            if kind == pdfium_c.FPDF_SEGMENT_LINETO:
                self._add_line(previous, point)
            elif kind == pdfium_c.FPDF_SEGMENT_MOVETO:
                first = point
            if _segment_closes(segment):
                self._add_line(point, first)
            previous = point

    def _add_line(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        width, height = abs(start[0] - end[0]), abs(start[1] - end[1])
        if min(width, height) <= 1.0 and max(width, height) >= _MIN_RULE_LENGTH:
            self.lines.append(_thin(_box_of(start, end)))


def _moved(x: float, y: float, matrix: _Matrix) -> tuple[float, float]:
    if matrix is _IDENTITY:
        return x, y
    a, b, c, d, e, f = matrix
    return a * x + c * y + e, b * x + d * y + f


def _box_of(one: tuple[float, float], other: tuple[float, float]) -> _Box:
    x, y = sorted((one[0], other[0])), sorted((one[1], other[1]))
    return x[0], y[0], x[1], y[1]


def _thin(box: _Box) -> _Box:
    """Returns the middle line of a thin box."""
    x0, y0, x1, y1 = box
    if x1 - x0 < y1 - y0:
        middle = (x0 + x1) / 2
        return middle, y0, middle, y1
    middle = (y0 + y1) / 2
    return x0, middle, x1, middle
