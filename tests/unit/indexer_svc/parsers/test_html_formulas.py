"""Each formula of an HTML page is read once: as TeX if the page has it, else as a line of text."""

import pytest

from indexer_svc.parsers.html import parse_html


def text_of(body: str) -> str:
    """Returns the text of a page with this body."""
    return parse_html(f"<body>{body}".encode(), 1 << 20).text


MATHML = "<mrow><mi>E</mi><mo>=</mo><mi>m</mi><msup><mi>c</mi><mn>2</mn></msup></mrow>"
TEX = '<annotation encoding="application/x-tex">E=mc^2</annotation>'
KATEX = (
    f'<span class="katex-mathml"><math><semantics>{MATHML}{TEX}</semantics></math></span>'
    '<span class="katex-html" aria-hidden="true"><span>E</span>=<span>mc2</span></span>'
)


@pytest.mark.parametrize(
    "formula",
    [
        f'<span class="katex">{KATEX}</span>',
        f'<span class="katex-display"><span class="katex">{KATEX}</span></span>',
        f"<math><semantics>{MATHML}{TEX}</semantics></math>",
        f'<math alttext="E=mc^2">{MATHML}</math>',
        f'<math alttext="{{\\displaystyle E=mc^2}}">{MATHML}</math>',
        (
            '<span class="mwe-math-element"><span class="mwe-math-mathml-inline" '
            'style="display: none">'
            f'<math alttext="{{\\displaystyle E=mc^2}}">{MATHML}</math></span><img alt="E=mc^2" '
            'class="mwe-math-fallback-image-inline" aria-hidden="true"></span>'
        ),
        '<img class="tex" alt="E=mc^2">',
        '<script type="math/tex">E=mc^2</script>',
        '<script type="math/tex; mode=display">E=mc^2</script>',
        (
            '<span class="MathJax_Preview">E=mc2</span>'
            '<span class="MathJax"><nobr>E=mc2</nobr></span>'
            '<script type="math/tex">E=mc^2</script>'
        ),
        (
            f'<mjx-container><mjx-math aria-hidden="true">E=mc2</mjx-math><mjx-assistive-mml>'
            f'<math data-latex="E=mc^2">{MATHML}</math></mjx-assistive-mml></mjx-container>'
        ),
    ],
    ids=[
        *("katex", "katex display", "annotation", "alttext", "display style", "wikipedia"),
        *("picture", "script", "display script", "mathjax 2", "mathjax 4"),
    ],
)
def test_a_formula_with_tex_is_read_once_as_tex(formula):
    assert text_of(f"<p>Energy {formula} here.</p>") == "Energy $E=mc^2$ here."


@pytest.mark.parametrize(
    ("mathml", "line"),
    [
        (MATHML, "E=mc^2"),
        ("<mfrac><mn>1</mn><mn>2</mn></mfrac>", "1/2"),
        ("<mfrac> <mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow> <mi>c</mi> </mfrac>", "(a+b)/c"),
        ("<msub><mi>x</mi><mi>i</mi></msub>", "x_i"),
        ("<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>", "x_i^2"),
        (
            (
                "<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi>"
                "</munderover><mi>i</mi>"
            ),
            "∑_(i=1)^n i",
        ),
        ("<msqrt><mi>x</mi><mo>+</mo><mn>1</mn></msqrt>", "sqrt(x+1)"),
        ("<mroot><mi>x</mi><mn>3</mn></mroot>", "root(3)(x)"),
        ("<mn>2</mn><msqrt><mi>b</mi></msqrt>", "2 sqrt(b)"),
        ("<mfrac><msqrt><mi>b</mi></msqrt><mn>2</mn></mfrac>", "sqrt(b)/2"),
        ("<mfrac linethickness=0><mi>n</mi><mi>k</mi></mfrac>", "n¦k"),
        ("<mfrac linethickness=0.0pt><mi>n</mi><mi>k</mi></mfrac>", "n¦k"),
        ("<mfrac linethickness=10%><mi>n</mi><mi>k</mi></mfrac>", "n/k"),
        ("<mover><mi>x</mi><mo>^</mo></mover>", "x\u0302"),
        ("<mover><mi>v</mi><mo>→</mo></mover>", "v\u20d7"),
        ("<mover><mrow><mi>A</mi><mi>B</mi></mrow><mo>¯</mo></mover>", "AB"),
        ("<mover><mi>x</mi><mi>n</mi></mover>", "x^n"),
        ("<munder><mi>x</mi><mo>⏟</mo></munder>", "x"),
        ("<munder><mi>x</mi><mi>n</mi></munder>", "x_n"),
        (
            "<mmultiscripts><mi>C</mi><mprescripts/><mn>6</mn><mn>14</mn></mmultiscripts>",
            "_6^14C",
        ),
        (
            "<mmultiscripts><mi>T</mi> <mi>i</mi> <none/> <none/> <mi>j</mi></mmultiscripts>",
            "T_i^j",
        ),
        ("<mmultiscripts><mi>T</mi></mmultiscripts>", "T"),
        ("<mmultiscripts><mprescripts/><mn>6</mn></mmultiscripts>", "6"),
        ("<mmultiscripts></mmultiscripts>", ""),
        ("<mi>sin</mi><mo>&#x2061;</mo><mi>x</mi>", "sin x"),
        ("<mn>2</mn><mo>&#x2062;</mo><mi>x</mi>", "2x"),
        ("<mi>a</mi><mtext>if</mtext><mi>b</mi>", "a if b"),
        (
            (
                "<mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr>"
                "<mtr><mtd><mn>3</mn></mtd><mtd><mn>4</mn></mtd></mtr></mtable>"
            ),
            "[1, 2; 3, 4]",
        ),
        ("<mi>a</mi><mphantom><mi>b</mi></mphantom>", "a"),
        ("<mfrac><mn>1</mn></mfrac>", "1"),
        ("", ""),
    ],
)
def test_mathml_without_tex_is_read_in_a_linear_format(mathml, line):
    assert text_of(f"<p>Take <math>{mathml}</math></p>") == f"Take {line}".strip()


ASSISTIVE = f'<span class="MJX_Assistive_MathML"><math>{MATHML}</math></span>'
DRAWN = '<svg><title>E</title><g data-mml-node="math"><use data-c="45"></use></g></svg>'


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (f'<span class="MathJax"><nobr aria-hidden="true">E</nobr>{ASSISTIVE}</span>', "E=mc^2"),
        (f'<span class="mjx-chtml"><span class="mjx-math">E</span>{ASSISTIVE}</span>', "E=mc^2"),
        (
            f'<span class="MathJax"></span><script type="math/mml"><math>{MATHML}</math></script>',
            "E=mc^2",
        ),
        ('<span class="MathJax"></span><script type="math/mml">?</script>', ""),
        (f'<mjx-container aria-label="E equals m">{DRAWN}</mjx-container>', "E equals m"),
        (f'<mjx-container>{DRAWN}<mjx-speech aria-label="E"></mjx-speech></mjx-container>', "E"),
        (
            '<mjx-container aria-label="E"><svg><g data-latex="E=m"></g></svg></mjx-container>',
            "$E=m$",
        ),
        ('<mjx-container aria-label="E is"><mjx-math>E=m</mjx-math></mjx-container>', "E=m"),
        (
            f'<mjx-container aria-label="E is">{DRAWN}<math>{MATHML}</math></mjx-container>',
            "E=mc^2",
        ),
        (f"<mjx-container>{DRAWN}</mjx-container>", ""),
        ("<nobr>E = mc</nobr>", "E = mc"),
    ],
)
def test_a_formula_of_mathjax_is_read_once_without_its_source(formula, text):
    assert text_of(f"<p>Take {formula} here.") == f"Take {text} here.".replace("  ", " ")


def test_the_numbers_of_a_fraction_stay_apart():
    quarter = '<span class="num">1</span>&frasl;<span class="den">4</span>'
    assert text_of(f'<p>Take <span class="frac">3{quarter}</span> cups') == "Take 3 1⁄4 cups"
    assert text_of(f'<p>Take <span class="frac">{quarter}</span> cups') == "Take 1⁄4 cups"
    assert text_of('<p>Take 3<span class="num">1</span>') == "Take 31"


def test_a_formula_that_is_written_only_as_boxes_is_read():
    boxes = '<span class="katex"><span class="katex-html" aria-hidden="true">E=m</span></span>'
    assert text_of(f"<p>Take {boxes}</p>") == "Take E=m"


def test_a_formula_with_a_prefix_of_xml_is_read():
    page = (
        '<?xml version="1.0"?><html xmlns:m="http://www.w3.org/1998/Math/MathML"><body><p>Take '
        "<m:math><m:mfrac><m:mn>1</m:mn><m:mn>2</m:mn></m:mfrac></m:math></p></body></html>"
    )
    assert parse_html(page.encode(), 1 << 20).text == "Take 1/2"


def test_a_deeply_nested_formula_does_no_harm():
    text_of("<p>a <math>" + "<msup><mi>x</mi>" * 5_000)
    text_of("<p>a <math>" + "<mfrac><mi>x</mi><mrow>" * 3_000)
