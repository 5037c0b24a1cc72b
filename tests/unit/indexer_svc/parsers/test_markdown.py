"""The headings of a Markdown text become sections at exact offsets."""

import re
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from indexer_svc.parsers import markdown
from indexer_svc.parsers.markdown import outline_of, parse_markdown
from indexer_svc.parsers.parsed_file import Heading
from indexer_svc.titles import MAX_SECTION_TITLE_CHARS, section_title

LINE_ENDS = ("\n", "\r\n", "\r")
PIECES = (
    *("# ", "## Top ", "#", "===", "---", "- ", "1. ", "> ", "```", "~~~", "    ", "  ", "\t"),
    *("word", "标题", "😀", "*bold*", "`code`", "<div>", "</div>", "<!--", "-->", "[a]: b", "\x00"),
    *("\\", "* * *", "\u2028", "\x0c", "é", "+ ", "|a|b|"),
)
LINES = st.lists(st.sampled_from(PIECES), max_size=4).map("".join)


@st.composite
def markdown_texts(draw: st.DrawFn) -> str:
    """Draws texts of Markdown syntax and words."""
    # The first line keeps a leading `---` from being front matter.
    lines = ["first", *draw(st.lists(LINES, max_size=12))]
    return "".join(line + draw(st.sampled_from(LINE_ENDS)) for line in lines)


def sections_of(text: str) -> tuple[Heading, ...]:
    return outline_of(text).sections


def titles(text: str) -> list[str]:
    return [section.title for section in sections_of(text)]


def outline(text: str) -> list[tuple[int, str]]:
    return [(section.depth, section.title) for section in sections_of(text)]


def reference_headings(text: str) -> dict[int, int]:
    """Returns the depth of each top-level heading by its line, as plain markdown-it finds it."""
    tokens = MarkdownIt("commonmark", {"maxNesting": 1000}).parse(text)
    return {
        token.map[0]: int(token.tag[1])
        for token in tokens
        if token.type == "heading_open" and token.level == 0 and token.map is not None
    }


def test_atx_and_setext_headings_have_their_depth():
    text = "# One\n\nintro\n\n###### Six\nTwo lines\nof title\n===\n\nSecond\n---\n"
    assert outline(text) == [(1, "One"), (6, "Six"), (1, "Two lines of title"), (2, "Second")]


def test_a_section_begins_at_the_start_of_its_heading_line():
    text = "intro\n\n  ## Indented\n\nTitle\non two lines\n===\n"
    assert sections_of(text) == (
        Heading("Indented", 2, text.index("  ## Indented")),
        Heading("Title on two lines", 1, text.index("Title\non")),
    )


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_offsets_are_code_points_of_the_original_text(line_end):
    text = line_end.join(["😀 汉字", "", "# 标题 one", "é", "", "Two", "---", "end"])
    first, second = sections_of(text)
    assert text[first.char_start :].startswith("# 标题 one")
    assert text[second.char_start :].startswith("Two")


@settings(max_examples=100)
@given(markdown_texts())
def test_sections_are_the_titled_headings_that_plain_markdown_it_finds(text):
    expected = reference_headings(text)
    starts = [0, *(line_end.end() for line_end in re.finditer(r"\r\n?|\n", text))]
    depths = {starts.index(section.char_start): section.depth for section in sections_of(text)}
    assert depths.items() <= expected.items()
    untitled = [starts[line] for line in expected.keys() - depths.keys()]
    lines = [re.split(r"[\r\n]", text[start:], maxsplit=1)[0] for start in untitled]
    assert not any("word" in line or "标题" in line or "Top" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# The *guide*\n\n# Later\n", "The guide"),
        ("intro\n\n## Part\n\nTitle\n=====\n", "Title"),
        ("## Part\n\n### Sub\n", ""),
        ("```\n# code\n```\n> # quote\n\n- # item\n", ""),
        ("title: text\n", ""),
        ("plain text", ""),
    ],
)
def test_the_title_is_the_first_heading_of_level_1(text, title):
    assert outline_of(text).title == title


def test_front_matter_gives_title_and_metadata_and_is_no_text():
    parsed = parse_markdown(b"---\ntitle: x\ntags: [a]\n---\n\n# A\n\n## B\n", 0)
    assert (parsed.text, parsed.title) == ("# A\n\n## B\n", "x")
    assert parsed.headings == (Heading("A", 1, 0), Heading("B", 2, 5))
    assert parsed.metadata == {"tags": ["a"]}


def test_a_text_without_front_matter_stays_as_it_is():
    text = "\ufeff---\r\n\r\n# A\r\n\r\n10<sup>6</sup>\r\n"
    assert parse_markdown(text.encode(), 0).text == text


@settings(max_examples=200)
@given(markdown_texts())
def test_sections_are_in_order_and_have_short_plain_titles(text):
    sections = sections_of(text)
    starts = [section.char_start for section in sections]
    assert starts == sorted(set(starts))
    assert all(1 <= len(section.title) <= MAX_SECTION_TITLE_CHARS for section in sections)
    assert all(section.title == section_title(section.title) for section in sections)


@settings(max_examples=100)
@given(st.text())
def test_any_text_has_an_outline(text):
    assert all(0 <= section.char_start < len(text) for section in sections_of(text))


@pytest.mark.parametrize(
    "text",
    [
        "```\n# no\n```\n",
        "~~~ md\n# no\n",
        "    # no\n",
        "<pre>\n# no\n</pre>\n",
        "<!--\n# no\n-->\n",
        "#no\n",
        "####### no\n",
        "\\# no\n",
        "#\n\n## \n",
        "# <a name='x'></a>\n",
        "",
    ],
)
def test_text_without_titled_headings_has_no_sections(text):
    assert sections_of(text) == ()


@pytest.mark.parametrize("text", ["- # no\n", "> # no\n", "1. a\n\n   # no\n", "- a\n  ===\n"])
def test_headings_inside_lists_and_quotes_are_not_in_the_outline(text):
    assert titles(text + "\n# Yes\n") == ["Yes"]


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("**Bold** and _it_", "Bold and it"),
        ("`code()` call ##", "code() call"),
        ("[link](https://example.com/a_b) text", "link text"),
        ("![alt *text*](i.png) after", "alt text after"),
        ("[![alt](i.png)](b) x", "alt x"),
        ("A &amp; B &lt;", "A & B <"),
        ("a \\* b\t  c", "a * b c"),
        ("<b>bold</b> x", "bold x"),
        ("snake_case 3 * 4", "snake_case 3 * 4"),
        ("[named][ref]", "named"),
        ("第一章　导言", "第一章 导言"),
        ("10<sup>6</sup> cells of H<sub>2</sub>O", "10^6 cells of H2O"),
        ("Warranty<sup>2</sup> terms", "Warranty [2] terms"),
        ("never <sup>closed", "never closed"),
        ("Install {#install}", "Install"),
        ("Install *it* {#install .unnumbered key=value}", "Install it"),
        ("Install {: .no-toc }", "Install"),
        ("The set {1, 2}", "The set {1, 2}"),
        ("Install {# install}", "Install {# install}"),
        ("The URL /a/{#b}", "The URL /a/{#b}"),
        ("{#install}", "{#install}"),
        ("never</sup> begun", "never begun"),
    ],
)
def test_a_title_has_no_markup(source, title):
    assert titles(f"# {source}\n\n[ref]: https://example.com\n") == [title]


def test_long_titles_are_cut():
    assert titles("# " + "x" * 1000) == ["x" * MAX_SECTION_TITLE_CHARS]
    assert titles("# *" + "x" * 1000 + "*")[0].startswith("*xxx")


def test_titles_of_mostly_markup_are_kept_as_written():
    assert titles("# " + "[" * 100 + " x") == ["[" * 100 + " x"]


@pytest.mark.parametrize(
    "text",
    [
        "---\n\n# A\n\n---\n",
        "---\nnote: a\n\n# A\n\n---\n",
        "---\nnote: a\n\nA\n---\n",
        "+++\n\n# A\n",
    ],
)
def test_a_thematic_break_at_the_start_hides_no_heading(text):
    assert [heading.title for heading in parse_markdown(text.encode(), 0).headings] == ["A"]


def test_a_byte_order_mark_before_a_heading_is_skipped():
    assert sections_of("\ufeff# A\n# B\n") == (Heading("A", 1, 1), Heading("B", 1, 5))


def test_headings_after_a_deeply_nested_list_are_found():
    nested = "".join("  " * depth + "- item\n" for depth in range(40))
    assert titles(nested + "\n# After\n") == ["After"]


def test_headings_after_the_line_limit_are_left_out(monkeypatch):
    monkeypatch.setattr(markdown, "MAX_LINES", 3)
    assert titles("# A\n\n# B\n# C\n") == ["A", "B"]
    assert titles("# A\r\n\r\n# B") == ["A", "B"]
    assert titles("# A\n\nB\n===\n") == ["A"]


def test_sections_beyond_the_limit_are_left_out(monkeypatch):
    monkeypatch.setattr(markdown, "MAX_HEADINGS", 1000)
    sections = sections_of("# a\n" * 1001)
    assert len(sections) == 1000
    assert sections[-1].char_start == 4 * 999


@pytest.mark.parametrize(
    "unit",
    [
        *("- ", "> ", "- a\n", "> a\n", "#", "# [", "[", "[a]: b\n", "```\n~~~\n", "<div>\n"),
        *(
            "- > - > a\n",
            "a\n=\n",
            "*a ",
            "`" * 7 + "\n",
            "\t",
            "\r",
            "1. ",
            "<!--\n",
            "![",
            "\\\n",
        ),
    ],
)
def test_time_is_linear_in_the_text(unit):
    """A text of 16 times the size may take 80 times as long. Quadratic time would be 256 times."""

    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        started = time.process_time()
        sections_of(text)
        return time.process_time() - started

    assert seconds(80_000) < 80 * max(seconds(5_000), 0.001)


def test_threads_can_parse_concurrently():
    text = "# *A*\n\n- x\n\n> y\n\nB\n---\n" * 50
    expected = sections_of(text)
    outlines = []
    threads = [
        threading.Thread(target=lambda: outlines.append(sections_of(text))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outlines == [expected] * 4
