"""The equation of an EQ field is written on one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer_svc.parsers.word.equation_fields import equation_of_field


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (r" \f(1,2) ", "1/2"),
        (r"\f(1;2,5)", "1/2,5"),
        (r"\f(a+b,2\,5)", "(a+b)/2,5"),
        (r"\f(f(x,y),2)", "(f(x,y))/2"),
        (r"\f(\f(1,2),x)", "(1/2)/x"),
        (r"x = \r(y)", "x = √y"),
        (r"\r(,y)", "√y"),
        (r"\r(3,x+1)", "∛(x+1)"),
        (r"m\s\up5(2)", "m^2"),
        (r"x\s\do5(i+1)", "x_(i+1)"),
        (r"\s(a,b)", "a b"),
        (r"\o\ad(\s\up 9(ルビ),東京)", "東京"),
        (r"\* jc2 \o\ac(○,1)", r"\* jc2 1"),
        (r"\o(x,\s\up8(ˉ))", "x"),
        (r"\o(―,―)", "― ―"),
        (r"\x\to\bo(boxed)", "boxed"),
        (r"\b(x)", "(x)"),
        (r"\b\bc\{(\a\al(x=1,y=2))", "{x=1; y=2}"),
        (r"\b\lc\{(x)", "{x"),
        (r"\b\rc\](x)", "x]"),
        (r"\b\bc\|(x)", "|x|"),
        (r"\a\co2(1,0,0,1)", "1, 0; 0, 1"),
        (r"\i(0,1,f)", "∫_0^1 f"),
        (r"\i\su(i=1,n,i)", "∑_(i=1)^n i"),
        (r"\i\pr(,,x)", "∏x"),
        (r"\l(a,b)", "a, b"),
        (r"a\d\fo20()b", "a b"),
        (r"\(1\)", "(1)"),
        (r"\f(1,2", "1/2"),
        ("x)", "x)"),
        ("", ""),
    ],
)
def test_an_equation_in_linear_format(code, text):
    assert equation_of_field(code) == text


def test_deep_nesting_causes_no_error():
    assert "x" in equation_of_field(r"\x(" * 600 + "x")


WORDS = st.text("abcdefg", min_size=1, max_size=4)
EQUATIONS = st.recursive(
    WORDS,
    lambda inner: st.builds(
        lambda command, parts: f"{command}({','.join(parts)})",
        st.sampled_from([r"\f", r"\r", r"\b", r"\a\co2", r"\l", r"\x", r"\s\up5", r"\s"]),
        st.lists(inner, min_size=2, max_size=2),
    ),
    max_leaves=12,
)


@given(EQUATIONS)
def test_no_word_is_lost_or_doubled_and_the_order_stays(code):
    def letters(text: str) -> str:
        return "".join(char for char in text if char in "abcdefg")

    words = code
    for command in (r"\f", r"\r", r"\b", r"\a\co2", r"\l", r"\x", r"\s\up5", r"\s"):
        words = words.replace(f"{command}(", "(")
    assert letters(equation_of_field(code)) == letters(words)
