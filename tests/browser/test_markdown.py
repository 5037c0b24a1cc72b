"""Markdown is shown as tables, headings, code and lists, keeps the marks, and never executes."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest

from hrag.types import Document
from tests.browser.explorer import Explorer, expect
from tests.browser.site import ATTACK
from tests.browser.test_untrusted import assert_harmless
from tests.support.servers.openai_server import says

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Served

pytestmark = pytest.mark.browser

# Shows a text and returns its HTML, without the attributes that repeat in each element.
_SHOWN = """async ([text, marks]) => {
  const { markdownBlocks } = await import("./markdown.js");
  const { markdownNodes } = await import("./markdown_view.js");
  const { textPainter } = await import("./marked_text.js");
  const box = document.createElement("div");
  box.append(...markdownNodes(markdownBlocks(text), textPainter(text, 0, marks)));
  for (const each of box.querySelectorAll("[tabindex]"))
    for (const name of ["tabindex", "role", "aria-label", "data-t"]) each.removeAttribute(name);
  return box.innerHTML;
}"""
# Returns the leaves of a text, and the seconds that reading it took.
_LEAVES = """async (text) => {
  const { markdownBlocks } = await import("./markdown.js");
  const began = performance.now();
  const blocks = markdownBlocks(text);
  const seconds = (performance.now() - began) / 1000;
  const leaves = [];
  const walk = (node) => {
    if (Array.isArray(node)) return node.forEach(walk);
    if (!node || typeof node !== "object") return;
    if ("from" in node) leaves.push([node.from, node.to]);
    for (const name of ["children", "address", "blocks", "items", "head", "rows", "ranges"])
      walk(node[name]);
  };
  walk(blocks);
  return [leaves, seconds];
}"""

FORMS = {
    "# A *b* #\ntext": '<p class="md-heading md-1">A <em>b</em></p><p>text</p>',
    "Title\n===\n#no heading": '<p class="md-heading md-1">Title</p><p>#no heading</p>',
    "a\nb  c\n\n    d": "<p>a\nb  c</p><p>    d</p>",
    "**a b**c __d__ ~~e~~ *f* _g_": (
        "<p><strong>a b</strong>c <strong>d</strong> <del>e</del> <em>f</em> <em>g</em></p>"
    ),
    "2*3*4 snake_case_name a * b * c ** d": "<p>2*3*4 snake_case_name a * b * c ** d</p>",
    "重点**加粗**文字": "<p>重点<strong>加粗</strong>文字</p>",
    "***both*** **a *b* c**": (
        "<p><strong><em>both</em></strong> <strong>a <em>b</em> c</strong></p>"
    ),
    "`a*b*` ``c`d`` \\*e\\* `open": "<p><code>a*b*</code> <code>c`d</code> *e* `open</p>",
    "- a\n  more\n  - b\n- c\n\n3. d\n4) e": (
        '<ul class="md-list"><li><p>a\nmore</p><ul class="md-list"><li><p>b</p></li></ul'
        '></li><li><p>c</p></li></ul><ol class="md-list" start="3"><li><p>d</p></li><li'
        "><p>e</p></li></ol>"
    ),
    "> a\n> - b\n\nc": (
        '<blockquote><p>a</p><ul class="md-list"><li><p>b</p></li></ul></blockquote><p>c</p>'
    ),
    "```py\n# no\n<b>\n```\nafter": (
        '<pre class="code-block"><code># no\n&lt;b&gt;</code></pre><p>after</p>'
    ),
    "~~~\nopen": '<pre class="code-block"><code>open</code></pre>',
    "| a | b |\n| --- | ---: |\n| `c` | d \\| e |\nend": (
        '<div class="md-table"><table><thead><tr><th>a</th><th class="align-right">b</t'
        'h></tr></thead><tbody><tr><td><code>c</code></td><td class="align-right">d | e'
        "</td></tr></tbody></table></div><p>end</p>"
    ),
    "| 1 | 2 |\n| 3 | 4 |": (
        '<div class="md-table"><table><tbody><tr><td>1</td><td>2</td></tr><tr><td>3</td'
        "><td>4</td></tr></tbody></table></div>"
    ),
    "a\n\n***\n\nb": "<p>a</p><hr><p>b</p>",
    'see [the *docs*](https://x.test/a_b_c "t") ![pic](p.png)': (
        '<p>see <span class="link">the <em>docs</em> <span class="address">https://x.te'
        'st/a_b_c</span></span> <span class="link">pic <span class="address">p.png</spa'
        "n></span></p>"
    ),
    "<https://x.test/?a=1>": '<p><span class="address">https://x.test/?a=1</span></p>',
    "[1] [a] (b) [c](d e f)": "<p>[1] [a] (b) [c](d e f)</p>",
    "a\r\nb\r\n\r\n- c\r\n": '<p>a\nb</p><ul class="md-list"><li><p>c</p></li></ul>',
    "": "",
}

HOSTILE = [
    ATTACK,
    f"# {ATTACK}",
    f"[{ATTACK}](javascript:window.attacked=1)",
    "[x](javascript:window.attacked=1) <javascript:window.attacked=1>",
    '![x](x" onerror="window.attacked=1)',
    "<svg onload=window.attacked=1><script>window.attacked=1</script></svg>",
    f"| {ATTACK} | b |\n| --- | --- |\n| {ATTACK} | <iframe src=javascript:window.attacked=1> |",
    f"```{ATTACK}\n{ATTACK}\n```",
    f"`{ATTACK}` **{ATTACK}** > {ATTACK}",
    "<a href=javascript:window.attacked=1>x</a><style>*{display:none}</style>",
    "</div></article><form action=//evil.test><input autofocus onfocus=window.attacked=1>",
    "- <details open ontoggle=window.attacked=1>\n> <img/src/onerror=window.attacked=1>",
    "&lt;img src=x onerror=window.attacked=1&gt; &#60;script&#62;",
]


@pytest.fixture
def page(explorer: Explorer) -> Page:
    explorer.page.goto(explorer.url)
    return explorer.page


def test_every_form_is_shown(page: Page) -> None:
    for text, html in FORMS.items():
        assert page.evaluate(_SHOWN, [text, []]) == html, text


def test_the_end_of_a_sentence_before_the_text_is_no_item(page: Page) -> None:
    blocks = """async (text) => {
      const { markdownBlocks } = await import("./markdown.js");
      return markdownBlocks(text, { isPart: true }).map(({ type }) => type);
    }"""
    assert page.evaluate(blocks, "7. The next sentence.\nAnother line.") == ["paragraph"]
    assert page.evaluate(blocks, "7. An item\n8. The next item") == ["list"]
    assert page.evaluate(blocks, "- An item") == ["list"]


def test_marks_stay_at_their_characters(page: Page) -> None:
    text = "😀 **two words** in\n\n| a | the cell |\n| --- | --- |"
    start = text.index("words")
    marks = [
        {"kind": "term", "start": start, "end": start + 5},
        {"kind": "leaf", "start": start + 3, "end": text.index("cell")},
    ]
    assert page.evaluate(_SHOWN, [text, marks]) == (
        '<p>😀 <strong>two <mark class="mark-term">wor</mark><mark class="mark-term mark-leaf">ds'
        '</mark></strong><mark class="mark-leaf"> in</mark></p><div class="md-table"><table><thead>'
        '<tr><th><mark class="mark-leaf">a</mark></th><th><mark class="mark-leaf">the </mark>cell'
        "</th></tr></thead><tbody></tbody></table></div>"
    )


def test_each_character_is_shown_once_and_in_order(page: Page) -> None:
    """Only the marks of Markdown are left out: no letter is lost, whatever the text is."""
    source = random.Random(7)
    parts = [
        "a",
        "b1",
        "词",
        "😀",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\r\n",
        "*",
        "**",
        "_",
        "`",
        "```",
        "~~",
    ]
    parts += [
        "[",
        "]",
        "(",
        ")",
        "](x)",
        "|",
        "| - |",
        "#",
        "# ",
        "> ",
        "- ",
        "1. ",
        "\\",
        "<",
        "---",
    ]
    texts = ["".join(source.choices(parts, k=source.randint(1, 40))) for _ in range(400)]
    for text in texts:
        leaves, _ = page.evaluate(_LEAVES, text)
        borders = [border for leaf in leaves for border in leaf]
        assert borders == sorted(borders), text
        utf16 = text.encode("utf-16-le")
        shown = b"".join(utf16[2 * start : 2 * end] for start, end in leaves).decode("utf-16-le")
        for char in "词😀" if re.search("`{3}|~{3}", text) else "b词😀":
            # The language after a fence is not shown.
            assert shown.count(char) == text.count(char), text


def test_the_time_is_bounded(page: Page) -> None:
    """A parser that searches for each end in the rest of the text would need minutes."""
    parts = ["*", "_", "**a", "`", "``a`", "[", "![", "[a](", "<", "<http://", "\\", "|", "| a "]
    parts += [
        "> ",
        "- ",
        "# ",
        "#",
        "1. ",
        "```\n",
        "- a\n  ",
        "\n",
        "a\n",
        " ",
        "~",
        "a|\n",
        "> - ",
    ]
    for part in (*parts, "\n\n- ", "[](", "**`"):
        _, seconds = page.evaluate(_LEAVES, part * (100_000 // len(part)))
        assert seconds < 20, part


def test_hostile_texts_never_run(explorer: Explorer, served: Served) -> None:
    client = served.running.client
    tenant = "hostile"
    text = "\n\n".join(f"Hostile {number}.\n\n{text}" for number, text in enumerate(HOSTILE))
    client.ingest(tenant, Document(text, "evil.md", ATTACK, metadata={"svg": HOSTILE[5]}))
    explorer.show("search", "default", tenant=tenant)
    passage = explorer.search("hostile").first
    expect(passage).to_contain_text("onerror")
    assert_harmless(explorer)
    passage.get_by_role("button", name="Open in document").click()
    expect(explorer.region("Text")).to_contain_text("<svg onload=window.attacked=1>")
    assert_harmless(explorer)
    served.chat.forget_faults()
    served.chat.inject(says(*(f"{text} [1]\n\n" for text in HOSTILE)))
    explorer.page.get_by_role("tab", name="Answer").click()
    explorer.page.get_by_role("textbox", name="Question").fill("hostile")
    explorer.page.keyboard.press("Enter")
    answer = explorer.region("Answer")
    expect(answer.get_by_text("The model ended its answer.")).to_be_visible()
    expect(answer.locator(".answer-text")).to_contain_text("svg onload=window.attacked=1>")
    assert_harmless(explorer)
    assert (
        explorer.page.locator("main form[action], main style, main details[ontoggle]").count() == 0
    )


def test_passages_and_documents_show_markdown_or_the_stored_text(
    explorer: Explorer, served: Served
) -> None:
    table = "## Torques\n\n| part | torque |\n| --- | --- |\n| sprocket | **35 Nm** |\n"
    # Another tenant, because documents of the collection GUIDE make the indexer call the model.
    tenant = "mechanic"
    served.running.client.ingest(tenant, Document(table, "torques.md"))
    explorer.show("search", "default", tenant=tenant)
    passage = explorer.search("sprocket").first
    expect(passage.get_by_role("cell")).to_have_text(["sprocket", "35 Nm"])
    assert explorer.marked("term", passage) == "sprocket"
    explorer.region("Results of setting A").get_by_role("switch", name="Text as stored").check()
    expect(passage).to_contain_text("| sprocket | **35 Nm** |")
    assert explorer.marked("term", passage) == "sprocket"
    passage.get_by_role("button", name="Open in document").click()
    text = explorer.region("Text")
    expect(text).to_contain_text("| sprocket | **35 Nm** |")
    explorer.panel("Documents").get_by_role("switch", name="Text as stored").uncheck()
    expect(text.get_by_role("cell")).to_have_text(["sprocket", "35 Nm"])


def test_source_code_is_not_markdown(explorer: Explorer, served: Served) -> None:
    code = "# a comment\n*args = 1\n"
    served.running.client.ingest("coder", Document(code, "x.py", mime_type="text/x-python"))
    explorer.show("documents", "default", tenant="coder", doc="x.py")
    expect(explorer.region("Text")).to_have_text(code)
    expect(explorer.region("Text").locator("p")).to_have_count(0)


def test_answers_show_markdown_with_citations(explorer: Explorer, served: Served) -> None:
    served.chat.forget_faults()
    served.chat.inject(
        says(
            "## Torque\n\nUse **40** [1].\n\n| part | torque |\n| --- | --- |\n",
            "| gasket | 40 [1, 2] |\n",
        )
    )
    explorer.show("answer")
    explorer.page.get_by_role("textbox", name="Question").fill("gasket torque")
    explorer.page.keyboard.press("Enter")
    text = explorer.region("Answer").locator(".answer-text")
    expect(text.get_by_role("button")).to_have_text(["1", "1", "2"])
    expect(text.get_by_role("cell").last.get_by_role("button")).to_have_text(["1", "2"])
    expect(text.locator("strong")).to_have_text("40")
    expect(text.locator(".md-heading")).to_have_text("Torque")
