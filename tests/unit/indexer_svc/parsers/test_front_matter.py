"""Front matter is separated from the text, and its fields are read as texts."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.types import MAX_TITLE_BYTES
from indexer_svc.parsers.front_matter import NO_FRONT_MATTER, front_matter_of

TEXT = "# Heading\n\nSome text.\n"


def rest(text: str) -> str:
    """Returns the text after the front matter."""
    return text[front_matter_of(text).end :]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    "lines",
    [
        "---\ntitle: Bees\n---\n",
        "---\ntitle: Bees\n...\n",
        "--- \ntitle: Bees\n--- \n\n\n",
        "---\n# required metadata\n\ntitle: Bees\nauthor: x\n---\n",
        "---\n\ntitle: Bees\n---\n",
        "---\ntitle: Bees\n# optional metadata\n\nkey: v\n---\n",
        "---\n$schema: x\ntitle: Bees\n---\n",
        "\ufeff---\ntitle: Bees\n---\n",
        "\n\n---\ntitle: Bees\n---\n",
        "<!-- A license\n--- -->\n\n---\ntitle: Bees\n---\n",
        "---\ntags:\n- a\n- b\n\ntitle: Bees\n---\n",
        "---\nog:title: x\ntitle: Bees\n---\n",
        "+++\ntitle = 'Bees'\n\n[menu]\nx = 1\n+++\n",
        '{\n  "title": "Bees",\n  "draft": true\n}\n\n',
    ],
)
def test_front_matter_is_not_text(lines, line_end):
    text = (lines + TEXT).replace("\n", line_end)
    assert front_matter_of(text).title == "Bees"
    assert rest(text) == TEXT.replace("\n", line_end)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---",
        "---\ntitle: never closed\n\ntext",
        "---\n\nA paragraph.\n\n---\n\nAnother one.\n",
        "---\n\n- a\n- b\n\n---\ntext",
        "---\nnote: a\n\nA paragraph\n---\ntext",
        "---\nnote: a\n\n- an item\n---\ntext",
        "---\nIt is a long sentence that ends with this: x\n---\ntext",
        "---\n---\ntext",
        "+++\ntext",
        "{{< template >}}\ntext",
        '{"a": 1} is JSON\n',
        "{}\ntext",
        "[1, 2]\ntext",
        "text\n---\ntitle: x\n---\n",
    ],
)
def test_other_beginnings_are_text(text):
    assert front_matter_of(text) == NO_FRONT_MATTER


@pytest.mark.parametrize("text", ["---\ntitle: Bees\n---\n", '{"title": "Bees"}\n\n'])
def test_a_file_of_nothing_but_front_matter_is_text(text):
    assert front_matter_of(text).title == "Bees"
    assert rest(text) == text


@pytest.mark.parametrize(
    ("lines", "fields"),
    [
        ("date: 2026-05-01\ndraft: true", {"date": "2026-05-01", "draft": "true"}),
        ("version: 1.10", {"version": "1.10"}),
        ("tags: [a, 'b, c', \"d\" , e] # x", {"tags": ["a", "b, c", "d", "e"]}),
        ("tags:\n  - a\n  - 'b: c'\n  - ~", {"tags": ["a", "b: c"]}),
        ("tags:\n- a\n# comment\n- b", {"tags": ["a", "b"]}),
        ("summary: >\n  A long\n\n  text\nlang: en", {"summary": "A long text", "lang": "en"}),
        ("'key one': x", {"key one": "x"}),
        ("a: x\na: y", {"a": "x"}),
        ("a:\nb: ~\nc: []\nd: ''", {}),
        ("a:\n  b: c", {}),
        ("a:\n  - b: c", {}),
        ("a:\n  - - b", {}),
        ("a: {b: c}\nd: [[e]]\nf: [{g: h}]\ni: *j\nk: !!l m", {}),
        ("a: [never closed", {}),
        ("title: T", {}),
    ],
)  # fmt: skip
def test_fields_of_yaml_are_texts_or_lists_of_texts(lines, fields):
    assert front_matter_of(f"---\n{lines}\n---\ntext").fields == fields


def test_names_with_very_many_dots_in_toml_are_not_read():
    """tomllib would need memory in proportion to the square of their number."""
    assert front_matter_of(f"+++\na = 1\n{'b.' * 50}b = 2\n+++\ntext").fields == {"a": "1"}
    matter = f"+++\na = 1\n{'b.' * 200}b = 2\n+++\n"
    assert front_matter_of(f"{matter}text") == ("", {}, len(matter))


def test_fields_of_toml_and_json_are_texts_or_lists_of_texts():
    toml = 'a = 1\nb = true\nc = 2026-05-01\nd = ["x", 2]\ne = [[1]]\nf = 10:30:00\n[g]\nh = 1'
    expected = {"a": "1", "b": "true", "c": "2026-05-01", "d": ["x", "2"], "f": "10:30:00"}
    assert front_matter_of(f"+++\n{toml}\n+++\ntext").fields == expected
    json = (
        '{"a": 1, "b": true, "d": ["x", 2], "e": [[1]], "g": {"h": 1}, "i": null, "j": "\\ud800k"}'
    )
    expected = {"a": "1", "b": "true", "d": ["x", "2"], "j": "k"}
    assert front_matter_of(f"{json}\ntext").fields == expected


def test_fields_are_bounded():
    many = "\n".join(f"key{n}: {'x' * 3000}" for n in range(20))
    fields = front_matter_of(f"---\n{many}\n---\ntext").fields
    assert 10 < len(fields) < 20
    assert {len(value) for value in fields.values()} == {1000}
    items = ", ".join(map(str, range(3000)))
    assert len(front_matter_of(f"---\na: [{items}]\n---\ntext").fields["a"]) == 100


@pytest.mark.parametrize(
    ("lines", "title"),
    [
        ("title: A guide", "A guide"),
        ("title:   A guide   # for people", "A guide"),
        ("title: C# in depth: a guide", "C# in depth: a guide"),
        ('title: "A \\"guide\\" # of caf\\u00e9s" # comment', 'A "guide" # of cafés'),
        (r'title: "\e"', r"\e"),
        ("title: 'It''s a guide'  # comment", "It's a guide"),
        ("title: |\n  A guide\n  to bees", "A guide to bees"),
        ("title: >-\n  A guide\n  to bees\nlang: en", "A guide to bees"),
        ('title: "A guide\n  to bees"', "A guide to bees"),
        ("title: A guide\n  to bees", "A guide to bees"),
        ("title: 1984", "1984"),
        ("title: -5 degrees", "-5 degrees"),
        ("lang: en\ntitle\t: A guide", "A guide"),
        ('"title": A guide', "A guide"),
        ("title: First\ntitle: Second", "First"),
        ("Title: A guide", "A guide"),
        ("tags: [a]\n\ntitle: A guide", "A guide"),
    ],
)
def test_a_title_is_read_from_yaml(lines, title):
    assert front_matter_of(f"---\n{lines}\n---\nText").title == title


@pytest.mark.parametrize(
    ("lines", "title"),
    [
        ('title = "A \\"guide\\" # of caf\\u00e9s" # comment', 'A "guide" # of cafés'),
        ("draft = true\ntitle='It is # a guide' # comment", "It is # a guide"),
        ("[page]\ntitle = 'A table'", ""),
        ("title = 3", "3"),
        ("title = 'never closed", ""),
        ("subtitle = 'A guide'", ""),
        ("title: A guide", ""),
    ],
)
def test_a_title_is_read_from_toml(lines, title):
    assert front_matter_of(f"+++\n{lines}\n+++\nText").title == title


@pytest.mark.parametrize(
    "lines",
    [
        "title:",
        "title: ''",
        'title: ""',
        "title: # only a comment",
        "title: null",
        "title: ~",
        "title: [a, b]",
        "title: {a: b}",
        "title: *alias",
        "title: &anchor A guide",
        "title: !tag A guide",
        "title: 'never closed",
        'title: "never closed',
        "title:\n  main: A guide",
        "title:\n  - A guide",
        "title: - A guide",
        "title:A guide",
        "subtitle: A guide",
        "page:\n  title: A guide",
    ],
)
def test_other_front_matter_has_no_title(lines):
    assert front_matter_of(f"---\n{lines}\n---\nText").title == ""


@given(st.text(max_size=1200))
def test_titles_are_one_line_within_their_limits(text):
    title = front_matter_of(f"---\ntitle: {text}\n---\nx").title
    assert len(title.encode()) <= MAX_TITLE_BYTES
    assert " ".join(title.split()) == title


@given(st.text(alphabet="-+.:#{}[]\"' \n\rab", max_size=60))
def test_only_a_beginning_is_removed(text):
    for start in ("", "---\n", "+++\n", "{"):
        read = front_matter_of(start + text)
        assert 0 <= read.end <= len(start + text)


@pytest.mark.parametrize(
    "text",
    [
        *(" " * 2_000_000, "<!--" * 500_000, "{" * 1_000_000, "---\n" + "a: b\n" * 500_000),
        *("---\n" + line + "\n---\nx" for line in (
            'title: "' + "\\" * 60_000, "title" + " " * 60_000, "title: " + "'" * 60_000,
            "a " * 30_000, "a: [" + '"' * 60_000, "a: " + " #" * 30_000,
        )),
        "+++\na = " + "[" * 60_000 + "\n+++\nx",
    ],
)  # fmt: skip
def test_hostile_front_matter_takes_linear_time(text):
    started = time.process_time()
    front_matter_of(text)
    assert time.process_time() - started < 2
