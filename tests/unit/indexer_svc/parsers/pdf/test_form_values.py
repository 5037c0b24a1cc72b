"""The values of a form are read at the places of their fields."""

from contextlib import closing

import pypdfium2 as pdfium
import pytest

from indexer_svc.parsers.pdf import parse_pdf
from indexer_svc.parsers.pdf.form_values import FormReader
from tests.support.documents.pdfs import FIRST_OTHER, pdf_of_streams, shown_at

_WIDGET = b"<< /Type /Annot /Subtype /Widget /Rect [%d %d %d %d] %s >>"


def form(*fields: tuple[tuple[int, int, int, int], bytes], stream: bytes = b"") -> bytes:
    """Returns a PDF of one page with these fields: their boxes and the entries of their widgets."""
    numbers = range(FIRST_OTHER, FIRST_OTHER + len(fields))
    names = b" ".join(b"%d 0 R" % number for number in numbers)
    others = {
        number: _WIDGET % (*box, b"/T (f%d) %s" % (number, entries))
        for number, (box, entries) in zip(numbers, fields, strict=True)
    }
    return pdf_of_streams(
        [stream or shown_at(50, 700, "Name:")],
        b"/Annots [%s]" % names,
        b"/AcroForm << /Fields [%s] /DA (/Helv 0 Tf) >>" % names,
        others,
    )


def values(content: bytes):
    with closing(pdfium.PdfDocument(content)) as document:
        reader = FormReader(document)
        return [text for text, _ in reader.values(document[0])]


def test_the_value_of_a_text_field():
    content = form(((100, 695, 300, 712), b"/FT /Tx /V (Ada Sample)"))
    assert values(content) == ["Ada Sample"]
    assert parse_pdf(content, 1 << 20).text == "Name: Ada Sample"


def test_the_chosen_entry_of_a_list():
    assert values(
        form(((100, 600, 300, 620), b"/FT /Ch /Ff 131072 /Opt [(Red) (Blue)] /V (Blue)"))
    ) == ["Blue"]


COMBO, EDITABLE_COMBO, MULTIPLE = 1 << 17, (1 << 17) + (1 << 18), 1 << 21


@pytest.mark.parametrize(
    ("flags", "options", "value", "expected"),
    [
        # What is shown counts, and not what the form sends.
        (COMBO, b"[(r) (Red)] [(b) (Blue)]", b"(b)", ["Blue"]),
        (0, b"[(r) (Red)] [(b) (Blue)]", b"(r)", ["Red"]),
        (MULTIPLE, b"(Red) (Blue) (Green)", b"[(Red) (Green)]", ["Red, Green"]),
        (MULTIPLE, b"[(r) (Red)] [(b) (Blue)]", b"[(r) (b)]", ["Red, Blue"]),
        (EDITABLE_COMBO, b"(Red) (Blue)", b"(Own word)", ["Own word"]),
        (COMBO, b"(Red) (Blue)", b"()", []),
    ],
)
def test_the_entries_of_lists(flags, options, value, expected):
    entries = b"/FT /Ch /Ff %d /Opt [%s] /V %s" % (flags, options, value)
    assert values(form(((100, 600, 300, 620), entries))) == expected


def test_boxes_to_tick():
    states = b"/FT /Btn /AP << /N << /Yes << >> /Off << >> >> >> "
    content = form(
        ((100, 600, 112, 612), states + b"/V /Yes /AS /Yes"),
        ((100, 580, 112, 592), states + b"/V /Off /AS /Off"),
    )
    assert values(content) == ["\u2612", "\u2610"]


def test_hidden_values_and_passwords_are_left_out():
    content = form(
        ((100, 600, 300, 620), b"/FT /Tx /V (hidden) /F 2"),
        ((100, 570, 300, 590), b"/FT /Tx /V (secret) /Ff 8192"),
        ((100, 540, 300, 560), b"/FT /Tx /V ()"),
    )
    assert values(content) == []
