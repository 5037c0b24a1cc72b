r"""LaTeX becomes sections, paragraphs, lists, tables, code and formulas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import TooLarge, UnreadableDocument
from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.latex import parse_latex
from indexer_svc.parsers.parsed_file import ParsedFile

AMPLE_BYTES = 1 << 20


def parsed(text: str) -> ParsedFile:
    return parse_latex(text.encode(), AMPLE_BYTES)


def in_document(body: str, preamble: str = "") -> ParsedFile:
    return parsed(
        f"\\documentclass[12pt]{{article}}\n{preamble}\n\\begin{{document}}\n{body}\n\\end{{document}}\nx"
    )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("plain words", "plain words"),
        (r"\emph{em} \textbf{bold} {\it old}", "em bold old"),
        (r"caf\'e na\"{\i}ve \ss{} \o", "café naïve ß ø"),
        (r"\'{\^a} \'{} \c{c}\v s \~{no}", "ấ çš ñõ"),
        (r"50\% R\&D \$5 \#1 a\_b", "50% R&D $5 #1 a_b"),
        ("``quoted'' a--b c---d", "“quoted” a–b c—d"),
        (r"one\\two", "one\ntwo"),
        (r"$a^2 + b_{i}$ and \(x<y\)", r"$a^2 + b_{i}$ and \(x<y\)"),
        (r"10\textsuperscript{6} H\textsubscript{2}O 1\textsuperscript{st}", "10^6 H2O 1st"),
        (r"see \cite{knuth84}", "see [knuth84]"),
        (r"see \citep[p.~3]{knuth84}", "see [knuth84]"),
        (r"\href{http://x}{link} \url{http://y_z}", "link http://y_z"),
        (r"\citeauthor{knuth84} (\citeyear[p.~3]{knuth84})", "[knuth84] ([knuth84])"),
        (r"\texttt{code\_x} \textsf{a} \textup{b} \textmd{c} \mbox{d e}", "code_x a b c d e"),
        (r"\LaTeX\ and \TeX{}, \S 5, \copyright{} 2 \euro{}", "LaTeX and TeX, §5, © 2 €"),
        (r"\SI{5}{\kilo\gram} \qty{3}{\metre\per\second}", "5 kilogram 3 metre per second"),
        (r"\SI[x=y]{5}[\$]{kg} \si{\newton\metre} \unit{m/s}", "5 kg newton metre m/s"),
        (r"\SIrange{1}{5}{\milli\metre}", "1–5 millimetre"),
        (r"\unknown{kept} \label{gone}x", "kept x"),
        (r"\verb|a_b%c{| and \verb+x+", "a_b%c{ and x"),
        ("a % gone\nb", "a\nb"),
        ("a\n% gone\nb", "a\nb"),
        ("a\n%\n\nb", "a\n\nb"),
        ("a % gone\n\nb", "a\n\nb"),
        (r"100\% sure % gone", "100% sure"),
        (r"a\\% gone", "a"),
        ("one\n\n\n  two", "one\n\ntwo"),
        (r"one\par two", "one\n\ntwo"),
        (r"\setlength{\parindent}{0pt}x\vspace*{2cm}", "x"),
        (r"\includegraphics[width=3cm]{bee.png}x", "x"),
        (r"\footnote{A note.}", "[A note.]"),
    ],
)
def test_text_is_read_without_its_commands(source, text):
    assert parsed(source).text == text
    assert in_document(source).text == text


def test_only_the_document_between_preamble_and_end_is_read():
    assert in_document("body", "preamble % \\begin{document}").text == "body"


@pytest.mark.parametrize(
    ("source", "headings"),
    [
        (r"\section{A}\subsection*{B}\section[short]{C}", [("A", 1), ("B", 2), ("C", 1)]),
        (r"\chapter{A}\section{B}", [("A", 1), ("B", 2)]),
        (r"\part{P}\chapter{A}\paragraph{B}", [("P", 1), ("A", 2), ("B", 6)]),
        (r"\subsection{A \emph{b} $x_1$}", [("A b $x_1$", 1)]),
        (r"\section{A {\bf b} \{c\}}", [("A b {c}", 1)]),
        (r"\sectionmark{A}\section {B}", [("B", 1)]),
        (r"\begin{abstract}x\end{abstract}\section{A}", [("Abstract", 1), ("A", 1)]),
    ],
)
def test_sections_are_headings_whose_highest_level_is_1(source, headings):
    file = in_document(source)
    assert [(head.title, head.depth) for head in file.headings] == headings
    for head in file.headings:
        assert file.text[head.char_start :].startswith(f"{'#' * head.depth} {head.title}")


def test_the_title_and_the_authors_are_fields_and_no_text():
    file = in_document(
        r"\maketitle Text",
        r"\title{On \emph{Bees}\thanks{x}}\author{Ann M\"uller\thanks{y} \\ Uni \and Bob}",
    )
    assert (file.title, file.text) == ("On Bees", "Text")
    assert file.metadata == {"author": ["Ann Müller", "Bob"]}
    assert in_document(r"\section{A}").title == "A"


def test_commands_without_parameters_are_replaced_by_their_text():
    file = in_document(
        r"\sys{} and \abc. \two{x}",
        r"\newcommand{\sys}{\textsc{Apis} A}\def\abc{Alphabet}\newcommand{\two}[1]{<#1>}",
    )
    assert file.text == "Apis A and Alphabet. x"
    endless = r"\newcommand{\xa}{\xa\xa\xb}\newcommand{\xb}{\xa}"
    assert in_document(r"\xa{}x", endless).text == "x"


def test_lists_have_their_nesting_numbers_and_labels():
    file = in_document(
        r"""\begin{itemize}
        \item one
        \begin{enumerate}\item first
        \item second \textbf{bold}\end{enumerate}
        \item[Label] two \end{itemize}
        \begin{description}\item[Bee] An insect.\end{description}"""
    )
    assert file.text == ("- one\n  1. first\n  2. second bold\n- Label two\n- Bee An insect.")


def test_references_are_a_section_of_items():
    file = in_document(
        r"\begin{thebibliography}{9}\bibitem{k} D. Knuth.\bibitem[L]{l} L.\end{thebibliography}"
    )
    assert file.text == "# References\n\n- [k] D. Knuth.\n- [L] L."


@pytest.mark.parametrize(
    "formula",
    [
        "\\begin{equation}\\label{e}\nE = mc^2 \\\\ x\n\\end{equation}",
        "\\begin{align*}\na &= b \\\\\nc &= d\n\\end{align*}",
        "\\[ x < y \\]",
        "$$\\frac{1}{2}$$",
    ],
)
def test_formulas_stay_as_they_are_written(formula):
    assert in_document(f"before {formula} after").text == f"before\n\n{formula}\n\nafter"


@pytest.mark.parametrize("environment", ["tabular", "longtable", "tabular*"])
def test_tables_are_tables(environment):
    option = "{5cm}" if environment.endswith("*") else ""
    file = in_document(
        rf"""\begin{{table}}[h]\centering\caption{{Prices of \emph{{pumps}}}}
        \begin{{{environment}}}{option}{{l|rr}} \toprule
        Name & \multicolumn{{2}}{{c}}{{Price}} \\ \midrule
        A \& B & 1.5 & $2^3$ \\[2pt] \cmidrule(lr){{1-2}}
        \multirow{{2}}{{*}}{{Valve}} & {{a \\ b}} & 4 \\ \hline
        \end{{{environment}}}\end{{table}}"""
    )
    table = "| Name | Price |  |\n| --- | --- | --- |\n| A & B | 1.5 | $2^3$ |\n| Valve | a b | 4 |"
    assert file.text == f"Prices of pumps\n\n{table}"
    assert file.report.table_count == 1


@pytest.mark.parametrize("begin", ["verbatim}", "lstlisting}[language=C]", "minted}{c}"])
def test_code_stays_as_it_is_written(begin):
    name = begin.partition("}")[0]
    file = in_document(f"x\n\\begin{{{begin}\nint a; % 1\n\\section{{no}}\n\\end{{{name}}}\ny")
    assert file.text == "x\n\n```\nint a; % 1\n\\section{no}\n```\n\ny"


def test_drawings_are_left_out_and_theorems_are_named():
    file = in_document(
        r"\begin{tikzpicture}\draw (0,0);\end{tikzpicture}\begin{theorem}[Main]All.\end{theorem}"
    )
    assert file.text == "Theorem (Main). All."


def test_other_files_are_named_in_the_report():
    report = in_document(r"\input{one}\include{two} x").report
    assert [(part.kind, part.part_count, part.example) for part in report.left_out] == [
        (LeftOutKind.ATTACHMENT, 2, "one")
    ]


def test_text_that_the_library_cannot_read_loses_its_commands():
    assert parsed("{" * 1_000 + "deep" + "}" * 1_000).text == "deep"
    assert parsed(r"word \verb").text == "word"


@pytest.mark.parametrize("command", ["\\section{", "\\title{", "\\caption{", "\\def\\a{"])
def test_many_braces_that_are_not_closed_are_refused(command):
    with pytest.raises(UnreadableDocument, match="not closed"):
        parsed(command * 2_000 + "x" * 50_000)


@pytest.mark.parametrize(
    "text",
    [
        "\\begin{tabular}" * 10_000,
        "\\begin{tabular}{l}" + "&" * 50_000 + "\\end{tabular}",
        "\\begin{equation}" * 10_000,
        "\\begin{verbatim}" * 20_000,
        "\\verb|" * 5_000,
        "$" * 50_001,
        "%" * 500_000,
        "\\begin{itemize}" * 10_000,
        "\\item[" * 5_000,
    ],
    ids=[
        "tables",
        "cells",
        "formulas",
        "verbatim",
        "verb",
        "dollars",
        "comment",
        "lists",
        "options",
    ],
)
def test_hostile_texts_take_little_time(text):
    parsed(text)


def test_more_text_than_allowed_is_refused():
    with pytest.raises(TooLarge):
        parse_latex(b"x" * 100, 99)


@given(st.lists(st.text("abcdefg", min_size=1, max_size=6), min_size=1, max_size=12), st.data())
def test_every_word_is_in_the_text_in_order(words, data):
    forms = (
        r"{0}",
        r"\emph{{{0}}}",
        r"{{\bf {0}}}",
        "\n\n{0}",
        r"\section{{{0}}}",
        r"\unknown{{{0}}}",
    )
    source = " ".join(data.draw(st.sampled_from(forms)).format(word) for word in words)
    assert in_document(source).text.replace("#", "").split() == words


@pytest.mark.parametrize("command", [r"\title", r"\author", r"\newcommand", r"\def\a"])
def test_white_space_after_a_command_means_nothing(command):
    assert in_document("text", f"{command} \n {{x}}").text == "text"
    assert in_document(f"text{command}{' ' * 100_000}y").text.startswith("text")


@pytest.mark.parametrize(
    "opening", [r"\sqrt[", r"\frac{", r"\cite[a][", r"\footnote{a ", r"{\href{"]
)
def test_arguments_that_are_not_closed_take_no_exponential_time(opening):
    assert "bees" in in_document(f"bees {opening * 300} dance").text
    assert "dance" in in_document(f"bees {opening} dance").text
