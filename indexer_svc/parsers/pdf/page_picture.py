"""The picture of a page of a PDF, for text recognition."""

import pypdfium2 as pdfium

from indexer_svc.parsers.recognition import Picture

# Dots per inch. Recognition reads print of 6 points at this resolution.
_DPI = 150
_POINTS_PER_INCH = 72
# The longer side of a picture has at most so many pixels, whatever size the page claims to have. An
# A4 page has them at 171 dots per inch. RapidOCR would make larger pictures as small itself.
MAX_SIDE_PIXELS = 2000


def picture_of(page: pdfium.PdfPage) -> Picture:
    """Returns a page on white, in a size that the recogniser needs.

    The values of a form are not shown, because they are read as text.
    """
    longer_side = max(*page.get_size(), 1.0)
    scale = min(_DPI / _POINTS_PER_INCH, MAX_SIDE_PIXELS / longer_side)
    bitmap = page.render(scale=scale, may_draw_forms=False)
    try:
        picture: Picture = bitmap.to_numpy()[:, :, :3].copy()
    finally:
        bitmap.close()
    return picture
