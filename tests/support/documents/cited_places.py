"""Documents with a sentence that must be cited, and the section and pages that contain it."""

from dataclasses import dataclass

from hrag.types import MARKDOWN, Document, Page
from tests.support.documents import pdfs


def story(topic: str, count: int) -> str:
    """Returns `count` sentences that answer no query of the cases; each has about ten tokens."""
    return " ".join(f"Here the {topic} goes on with remark {n}." for n in range(count))


def markdown(text: str) -> Document:
    return Document(text, mime_type=MARKDOWN)


@dataclass(frozen=True)
class Case:
    """A document, a query, and the sentence that must be cited with its section and pages."""

    name: str
    document: Document
    query: str
    sentence: str
    section_path: tuple[str, ...] = ()
    pages: tuple[int, int] = (0, 0)


VALVE = "The alpha valve opens at a pressure of five bar."
CASES = [
    Case(
        "a tiny section before a long one",
        markdown(f"# Alpha\n\n{VALVE}\n\n# Beta\n\n{story('beta', 16)}"),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "a tiny section after a long one",
        markdown(f"# Beta\n\n{story('beta', 16)}\n\n# Alpha\n\n{VALVE}\n"),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "a tiny section between long ones",
        markdown(
            f"# Beta\n\n{story('beta', 40)}\n\n# Alpha\n\n{VALVE}\n\n"
            f"# Gamma\n\n{story('gamma', 40)}"
        ),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "a row of tiny sections",
        markdown("".join(f"## Step {n}\n\nTurn the handle {n} times.\n\n" for n in range(30))),
        "handle 17 times",
        "Turn the handle 17 times.",
        ("Step 17",),
    ),
    Case(
        "the last words of a section, in a leaf with more text of the next section",
        markdown(f"# Beta\n\n{story('beta', 3)} {VALVE}\n\n# Gamma\n\n{story('gamma', 30)}"),
        "alpha valve pressure",
        VALVE,
        ("Beta",),
    ),
    Case(
        "a section below two other headings",
        markdown(
            f"# Guide\n\nRead on.\n\n## Install\n\n{story('install', 9)}\n\n### Linux\n\n"
            f"{story('linux', 2)} Run the setup script as root.\n\n"
            f"### Windows\n\n{story('windows', 9)}"
        ),
        "run setup script root",
        "Run the setup script as root.",
        ("Guide", "Install", "Linux"),
    ),
    Case(
        "text of a parent section directly after its heading",
        markdown(f"# Guide\n\n## Install\n\n{VALVE}\n\n## Use\n\n{story('use', 30)}"),
        "alpha valve pressure",
        VALVE,
        ("Guide", "Install"),
    ),
    Case(
        "text before the first heading",
        markdown(f"{VALVE}\n\n# Beta\n\n{story('beta', 16)}"),
        "alpha valve pressure",
        VALVE,
        (),
    ),
    Case(
        "headings with underlines",
        markdown(f"Alpha\n=====\n\n{VALVE}\n\nBeta\n----\n\n{story('beta', 16)}"),
        "valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "an underlined heading with text directly below",
        markdown(f"Alpha\n=====\n{VALVE}\n\nBeta\n----\n{story('beta', 16)}"),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "a heading that looks like the end of a sentence",
        markdown(f"# 1. Alpha valve\n\n{VALVE}\n\n# 2. Opening hours\n\n{story('beta', 16)}"),
        "opening hours",
        "# 2. Opening hours",
        ("2. Opening hours",),
    ),
    Case(
        "front matter before the first section",
        markdown(f"---\ntitle: Manual\n---\n\n# Alpha\n\n{VALVE}\n\n# Beta\n\n{story('beta', 16)}"),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "an item of a list",
        markdown(
            f"# Alpha\n\n- one thing\n- the valve pressure is five bar\n- another\n\n"
            f"# Beta\n\n{story('beta', 16)}"
        ),
        "valve pressure",
        "- the valve pressure is five bar",
        ("Alpha",),
    ),
    Case(
        "a number sign in a code block",
        markdown(
            f"# Alpha\n\n```\n# not a heading\n```\n\n{VALVE}\n\n# Beta\n\n{story('beta', 16)}"
        ),
        "valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "Chinese",
        markdown(
            "# 总则\n\n本法适用于全国。\n\n# 处罚\n\n"
            + "违反规定的人员应当改正。" * 12
            + "\n\n# 附则\n\n本法自五月一日起施行。\n"
        ),
        "何日施行",
        "本法自五月一日起施行。",
        ("附则",),
    ),
    Case(
        "lines that end with carriage returns",
        markdown(f"# Alpha\r\n\r\n{VALVE}\r\n\r\n# Beta\r\n\r\n{story('beta', 16)}\r\n"),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "more of the query's terms in a later section",
        markdown(
            f"# Beta\n\nEvery valve is old.\n\n# Alpha\n\n{VALVE}\n\n# Gamma\n\n{story('gamma', 9)}"
        ),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "the second page of a PDF",
        Document(
            pdfs.pdf_of(
                [f"Beta\n{story('beta', 3)}", f"Alpha\nIt is red. {VALVE}"],
                [pdfs.Bookmark("Beta", 1, 0), pdfs.Bookmark("Alpha", 1, 1)],
            )
        ),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
        (2, 2),
    ),
    Case(
        "two sections on a page of a PDF, whose headings have numbers and capital letters",
        Document(
            pdfs.pdf_of(
                [f"1 ALPHA VALVES\n{VALVE}\nChapter 2: The beta\n{story('beta', 4)}"],
                [pdfs.Bookmark("Alpha valves", 1, 0), pdfs.Bookmark("The beta", 1, 0)],
            )
        ),
        "valve opens pressure",
        VALVE,
        ("1 ALPHA VALVES",),
        (1, 1),
    ),
    Case(
        "a bookmark whose title takes two lines",
        Document(
            pdfs.pdf_of(
                [story("cover", 2), f"{story('beta', 2)}\nOn the\nvalve\n{VALVE}"],
                [pdfs.Bookmark("Cover", 1, 0), pdfs.Bookmark("On the valve", 2, 1)],
            )
        ),
        "alpha pressure",
        VALVE,
        ("Cover", "On the valve"),
        (2, 2),
    ),
    Case(
        "a bookmark that leads to a page without its title",
        Document(
            pdfs.pdf_of(
                [story("cover", 3), VALVE, story("beta", 3)],
                [pdfs.Bookmark(title, 1, page) for page, title in enumerate("abc")],
            )
        ),
        "alpha valve pressure",
        VALVE,
        ("b",),
        (2, 2),
    ),
    Case(
        "pages of a PDF without bookmarks",
        Document(pdfs.pdf_of([story("cover", 3), story("beta", 3), VALVE, story("gamma", 3)])),
        "alpha valve pressure",
        VALVE,
        (),
        (3, 3),
    ),
    Case(
        "pages with explicit page numbers",
        Document((Page(story("cover", 5), 7), Page(VALVE, 9), Page(story("beta", 5), 10))),
        "alpha valve pressure",
        VALVE,
        (),
        (9, 9),
    ),
    Case(
        "a section that continues after a page break",
        Document(
            (
                Page(f"# Beta\n\n{story('beta', 2)}\n\n# Alpha\n\nIt is red."),
                Page(VALVE),
                Page(f"# Gamma\n\n{story('gamma', 9)}"),
            ),
            mime_type=MARKDOWN,
        ),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
        (2, 2),
    ),
    Case(
        "empty pages and pages that begin with blank lines",
        Document(
            (Page(story("cover", 5)), Page(""), Page(f"\n\n{VALVE}\n\n"), Page("\n\nThe end."))
        ),
        "alpha valve pressure",
        VALVE,
        (),
        (3, 3),
    ),
]
