"""Equations of Word documents become text in a linear format."""

import time

import pytest

from hrag.values.formats import DOCX
from indexer_svc.parsers.parser_functions import parse
from tests.support.documents.word_files import word_file

AMPLE_BYTES = 1 << 20


def r(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


def e(name: str, content: str) -> str:
    return f"<m:{name}>{content}</m:{name}>"


def square(base: str) -> str:
    return e("sSup", e("e", base) + e("sup", r("2")))


FRACTION = e("f", e("num", r("a+b")) + e("den", r("2c")))
BINOMIAL = e("f", e("fPr", '<m:type m:val="noBar"/>') + e("num", r("n")) + e("den", r("k")))
ROOT = e("rad", e("radPr", '<m:degHide m:val="1"/>') + e("deg", "") + e("e", r("x+1")))
CUBE_ROOT = e("rad", e("deg", r("3")) + e("e", r("x")))
SUM = e(
    "nary",
    e("naryPr", '<m:chr m:val="∑"/>') + e("sub", r("i=1")) + e("sup", r("n")) + e("e", r("i")),
)
INTEGRAL = e("nary", e("sub", "") + e("sup", "") + e("e", r("xdx")))
BRACKETS = e("d", e("dPr", '<m:begChr m:val="["/><m:endChr m:val="]"/>') + e("e", r("x")))
PARENTHESES = e("d", e("e", r("x")) + e("e", r("y")))
SINE = e("func", e("fName", r("sin")) + e("e", r("x")))
LIMIT = e("func", e("fName", e("limLow", e("e", r("lim")) + e("lim", r("n→∞")))) + e("e", r("a")))
ROWS = (e("mr", e("e", r(a)) + e("e", r(b))) for a, b in (("1", "0"), ("0", "1")))
MATRIX = e(
    "d", e("dPr", '<m:begChr m:val=""/><m:endChr m:val=""/>') + e("e", e("m", "".join(ROWS)))
)
CASES = e("eqArr", e("e", r("x=1")) + e("e", r("y=2")))
ALIGNED = e("eqArr", e("e", r("x&amp;=1")) + e("e", r("y &amp;= 2")))
NUMBERED = e("eqArr", e("e", r("x=1#") + e("d", e("e", r("7")))))
BAR = e("bar", e("barPr", '<m:pos m:val="top"/>') + e("e", r("x")))
BAR_BELOW = e("bar", e("e", r("x")))
LONG_BAR = e("bar", e("barPr", '<m:pos m:val="top"/>') + e("e", r("x+1")))
INDEXED = e("sSubSup", e("e", r("x")) + e("sub", r("i")) + e("sup", r("2")))
ISOTOPE = e("sPre", e("sub", r("6")) + e("sup", r("14")) + e("e", r("C")))
HAT = e("acc", e("e", r("x")))
PHANTOM = e("phant", e("phantPr", '<m:show m:val="0"/>') + e("e", r("unseen")))


@pytest.mark.parametrize(
    ("math", "text"),
    [
        (r("E=m") + square(r("c")), "E=mc^2"),
        (FRACTION, "(a+b)/2c"),
        (BINOMIAL, "n¦k"),
        (ROOT, "sqrt(x+1)"),
        (CUBE_ROOT, "root(3)(x)"),
        (r("2") + ROOT + r("y"), "2 sqrt(x+1)y"),
        (e("f", e("num", ROOT) + e("den", r("2"))), "sqrt(x+1)/2"),
        (SUM, "∑_(i=1)^n i"),
        (INTEGRAL, "∫xdx"),
        (BRACKETS, "[x]"),
        (PARENTHESES, "(x|y)"),
        (SINE, "sin x"),
        (LIMIT, "lim_(n→∞) a"),
        (MATRIX, "[1, 0; 0, 1]"),
        (CASES, "x=1; y=2"),
        (ALIGNED, "x=1; y = 2"),
        (NUMBERED, "x=1 (7)"),
        (r("a&amp;b#(c)"), "a&b#(c)"),
        (BAR, "x\u0305"),
        (BAR_BELOW, "x\u0332"),
        (LONG_BAR, "x+1"),
        (INDEXED, "x_i^2"),
        (ISOTOPE, "_6^14C"),
        (HAT, "x\u0302"),
        (INDEXED + INDEXED + r("=y"), "x_i^2 x_i^2=y"),
        (FRACTION + r("x"), "(a+b)/2c x"),
        (r("sin\u2061") + r("θ"), "sin θ"),
        (PHANTOM + r("x"), "x"),
    ],
)
def test_an_equation_in_linear_format(math, text):
    content = word_file(f"<w:p><m:oMath>{math}</m:oMath></w:p>")
    assert parse(content, DOCX, AMPLE_BYTES).text == text


def test_deep_nesting_of_an_equation_takes_little_time():
    math = "<m:d><m:e>" * 20_000 + r("x") + "</m:e></m:d>" * 20_000
    content = word_file(f"<w:p>{'<w:r><w:t>a</w:t></w:r>'}<m:oMath>{math}</m:oMath></w:p>")
    began = time.process_time()
    assert parse(content, DOCX, AMPLE_BYTES).text.startswith("a")
    assert time.process_time() - began < 2
