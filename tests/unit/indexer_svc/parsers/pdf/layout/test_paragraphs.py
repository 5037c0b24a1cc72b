"""Words that were broken at a line end are joined, and codes keep their hyphens."""

import pytest

from indexer_svc.parsers.pdf.layout.paragraphs import Vocabulary, joined, joined_lines
from tests.support.documents.page_contents import lines, paragraph


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("the transporta-", "tion of", "the transportation of"),
        ("code E-", "4711 and", "code E-4711 and"),
        ("in 2019-", "2021 only", "in 2019-2021 only"),
        ("part AB12-", "x rear", "part AB12-x rear"),
        ("well-", "known risks", "well-known risks"),
        ("the state-of-the-", "art pump", "the state-of-the-art pump"),
        ("end-", "to-end test", "end-to-end test"),
        ("Anglo-", "American", "Anglo-American"),
        ("high-", "est", "highest"),
        ("a dash -", "and more", "a dash - and more"),
        ("a T-", "shirt", "a T-shirt"),
        ("the x-", "ray unit", "the x-ray unit"),
        ("an e-", "mail", "an e-mail"),
        ("der Ein-", "und Ausgang", "der Ein- und Ausgang"),
        ("die Vor-", "oder Nachteile", "die Vor- oder Nachteile"),
        ("first-", "and second-class", "first- and second-class"),
        ("pre-", "or post-war", "pre- or post-war"),
        ("a hon-", "or to us", "a honor to us"),
        ("the oper-", "and of it", "the operand of it"),
        ("Hus-", "bands", "Husbands"),
        ("see example.org/", "path", "see example.org/path"),
        ("at ftp://ftp.fu-", "berlin.de/tex", "at ftp://ftp.fu-berlin.de/tex"),
        ("to ann@rail-", "way.org", "to ann@rail-way.org"),
        ("by 5 m/", "s in", "by 5 m/s in"),
        ("and/", "or", "and/or"),
        ("one /", "two", "one / two"),
        ("plain", "words", "plain words"),
        ("中文", "字", "中文字"),
        ("", "first", "first"),
    ],
)
def test_two_lines_are_joined(before, after, expected):
    assert joined(before, after) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # A part of the address ends with its sign, or the next part begins with one.
        ("at https://www.", "R-project.org/ now", "at https://www.R-project.org/ now"),
        ("at https://", "example.org now", "at https://example.org now"),
        ("on https://lists.", "debian.org/x", "on https://lists.debian.org/x"),
        ("on https://sso.debian.", "org. Then", "on https://sso.debian.org. Then"),
        ("of http://a.org/removals.", "html.", "of http://a.org/removals.html."),
        ("of http://a.org/Calcul_", "formel", "of http://a.org/Calcul_formel"),
        ("of http://a.org/x?id=", "47&y=1", "of http://a.org/x?id=47&y=1"),
        ("of http://a.org/x?", "id=47", "of http://a.org/x?id=47"),
        ("of http://a.org/x?id=4", "7&y=1", "of http://a.org/x?id=47&y=1"),
        ("see https://gitlab", ".com/a", "see https://gitlab.com/a"),
        ("see https://a.org", "/path and", "see https://a.org/path and"),
        # The host is cut anywhere.
        ("at https://www.very-cho", "ice.net/ and", "at https://www.very-choice.net/ and"),
        ("at https://git", "lab.com/a", "at https://gitlab.com/a"),
        ("to ann.sample@example.", "org today", "to ann.sample@example.org today"),
        # An address is complete, and words follow.
        ("see www.a.org.", "It is", "see www.a.org. It is"),
        ("see https://a.org/b.", "Then go", "see https://a.org/b. Then go"),
        ("see https://a.org.", "then go", "see https://a.org. then go"),
        ("at https://a.org", "example.net is", "at https://a.org example.net is"),
        ("Do you know https://a.org/b?", "We do", "Do you know https://a.org/b? We do"),
        ("from https://a.org/b/", "and more", "from https://a.org/b/ and more"),
        ("from https://a.org/b/", "android", "from https://a.org/b/android"),
        ("see https://a.org/b", "and so on", "see https://a.org/b and so on"),
        ("see https://a.org/b", "setup.py", "see https://a.org/b setup.py"),
        ("the end.", "org. chart", "the end. org. chart"),
    ],
)
def test_an_address_that_is_broken_at_a_line_end_is_joined(before, after, expected):
    assert joined(before, after) == expected


def test_the_document_decides_if_it_has_one_of_both_words():
    known = lines(paragraph(["the email arrived", "a co-operative is here"], 0, 10))
    words = Vocabulary(known)
    assert joined("the e-", "mail", words) == "the email"
    assert joined("a co-", "operative", words) == "a co-operative"
    known = Vocabulary(lines(paragraph(["a thousand miles"], 0, 10)))
    assert joined("a thous-", "and well-known miles", known) == "a thousand well-known miles"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # The document has the compound, or the last word of it.
        ("the high-pres-", "sure pump", "the high-pressure pump"),
        ("High-pres-", "sure pumps", "High-pressure pumps"),
        ("a low-pres-", "sure pump", "a low-pressure pump"),
        ("an input/out-", "put unit", "an input/output unit"),
        # It has the compound with this hyphen, or none of both.
        ("a step-by-", "step guide", "a step-by-step guide"),
        ("a high-tempera-", "ture pump", "a high-tempera-ture pump"),
        ("the E-47-", "pressure", "the E-47-pressure"),
    ],
)
def test_a_compound_is_broken_inside_its_last_word_if_the_document_says_so(before, after, expected):
    known = ["the high-pressure pump has much pressure", "step-by-step", "the output"]
    assert joined(before, after, Vocabulary(lines(paragraph(known, 0, 10)))) == expected


def test_hyphens_stay_in_a_document_whose_lines_are_not_hyphenated():
    ragged = [
        f"words of a line that ends where it likes {'x' * (index % 9)}" for index in range(80)
    ]
    words = Vocabulary(lines(paragraph(ragged, 0, 10)))
    assert not words.is_hyphenated
    assert joined("peptide-", "treated", words) == "peptide-treated"


def test_lines_of_a_cell_are_joined():
    cell = lines(paragraph(["Repair of the con-", "veyor"], 0, 10))
    assert joined_lines(cell) == "Repair of the conveyor"
    assert joined_lines([]) == ""
