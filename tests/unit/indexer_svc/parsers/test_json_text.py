"""JSON becomes lines with paths, tables and sections."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import TooLarge, UnreadableDocument
from hrag.values.document_limits import MAX_DATA_DEPTH
from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.json_text import parse_json
from indexer_svc.parsers.parsed_file import ParsedFile

AMPLE_BYTES = 1 << 20


def parsed(text: str) -> ParsedFile:
    return parse_json(text.encode(), AMPLE_BYTES)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"a": 1}', "a: 1"),
        ('{"a": {"b": "Ann"}}', "# a\n\na.b: Ann"),
        ('{"a": "two\\nlines"}', "a:\ntwo\nlines"),
        ('{"a": ["x", "y"]}', "a: x, y"),
        ('{"a": ["x, y", "z"]}', "a: x, y; z"),
        ('{"a": [true, null, 1.50, -1e400]}', "a: true, null, 1.50, -1e400"),
        ('{"a": [], "b": {}, "c": ""}', "a:\nb:\nc:"),
        ('{"a": 1, "a": 2}', "a: 1\na: 2"),
        ('{"a.b": 1, "": 2, "c d": 3, "e:": 4}', '["a.b"]: 1\n[""]: 2\nc d: 3\n["e:"]: 4'),
        ('"text"', "text"),
        ("[1, 2]", "1, 2"),
        ("[[1, 2], [3]]", "# [0]\n\n[0]: 1, 2\n\n# [1]\n\n[1]: 3"),
        ('{"n": 12345678901234567890123}', "n: 12345678901234567890123"),
        ('\ufeff{"a": "\\u00e9"}', "a: é"),
    ],
)
def test_values_become_lines_with_their_path(text, shown):
    if shown.startswith("# [0]"):
        shown = "[0]: 1, 2\n[1]: 3"
    assert parsed(text).text == shown


def test_nested_values_have_the_whole_path():
    orders = [{"customer": {"name": name}} for name in ("Ann", "Bob")]
    lines = parsed(json.dumps({"orders": orders})).text.splitlines()
    assert "orders[1].customer.name: Bob" in lines


def test_texts_come_before_the_sections_beside_them():
    file = parsed('{"a": {"x": 1}, "b": 2}')
    assert file.text == "b: 2\n\n# a\n\na.x: 1"


TABLE = "| id | name |\n| --- | --- |\n| 1 | Ann |\n| 2 | Bob |"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('[{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}]', TABLE),
        ('[{"id": 1, "name": "Ann"}, {"name": "Bob", "id": 2}]', TABLE),
        ('{"id": 1, "name": "Ann"}\n{"id": 2, "name": "Bob"}\n', TABLE),
        ('\x1e{"id": 1, "name": "Ann"}\n\x1e{"id": 2, "name": "Bob"}\n', TABLE),
        ('{"p": [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}]}', f"# p\n\n{TABLE}"),
    ],
)
def test_equal_records_are_a_table(text, shown):
    file = parsed(text)
    assert file.text == shown
    assert file.report.table_count == 1


@pytest.mark.parametrize(
    "records",
    [
        [{"id": 1, "x": 2}],
        [{"id": 1}, {"id": 2}],
        [{"id": 1, "x": {"y": 2}}, {"id": 2, "x": {"y": 3}}],
        [{"id": 1}, [2]],
        [{"id": 1, "text": "long " * 80}, {"id": 2, "text": "x"}],
        [{"id": 1, "text": "two\nlines"}, {"id": 2, "text": "x"}],
        [{f"a{n}": 1} for n in range(5)],
        [{f"a{n}": 1 for n in range(60)}] * 2,
    ],
    ids=[
        "one",
        "one column",
        "nested",
        "list",
        "long text",
        "lines",
        "few in common",
        "many columns",
    ],
)
def test_other_lists_are_no_table(records):
    assert parsed(json.dumps(records)).report.table_count == 0


def test_records_with_a_name_twice_are_no_table_and_both_values_are_kept():
    file = parsed('[{"a": 1, "a": 2}, {"a": 3}]')
    assert [line for line in file.text.splitlines() if line.startswith("[")] == [
        "[0].a: 1", "[0].a: 2", "[1].a: 3",
    ]  # fmt: skip


def test_records_with_a_title_are_sections_of_that_title():
    articles = [{"title": f"Article {n}", "text": "x\ny"} for n in range(2)]
    file = parsed(json.dumps({"articles": articles}))
    assert [(head.title, head.depth) for head in file.headings] == [
        ("articles", 1), ("Article 0", 2), ("Article 1", 2),
    ]  # fmt: skip
    for head in file.headings:
        assert file.text[head.char_start :].startswith(f"{'#' * head.depth} {head.title}\n")


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ('{"name": "n", "title": "The Bees"}', "The Bees"),
        ('{"name": "n"}', "n"),
        ('{"doc": {"title": "Inner"}}', "Inner"),
        ('{"a": {"title": "x"}, "b": {"title": "y"}}', ""),
        ('[{"title": "x"}]', ""),
        ('{"title": ["x"]}', ""),
    ],
)
def test_the_title_is_the_one_at_the_top(text, title):
    assert parsed(text).title == title


@pytest.mark.parametrize(
    "picture",
    ["data:image/png;base64," + "iVBORw0K" * 90, "QUJD" * 200, ("QUJD" * 19 + "\n") * 20 + "QUJD"],
)
def test_files_in_base64_are_left_out(picture):
    file = parsed(json.dumps({"a": "word", "picture": picture}))
    assert file.text == "a: word"
    assert [(part.kind, part.part_count) for part in file.report.left_out] == [
        (LeftOutKind.ATTACHMENT, 1)
    ]
    assert file.report.left_out[0].example.startswith("picture (")


def test_a_long_text_of_words_is_kept():
    words = "word " * 500
    assert parsed(json.dumps({"a": words})).text == f"a: {words.strip()}"


def test_characters_that_no_text_has_are_replaced():
    assert parsed('{"a": "x\\ud800y", "b\\u0000": 1}').text == "a: x\ufffdy\nb\ufffd: 1"
    assert parsed('{"a": "\\ud83d\\ude00"}').text == "a: 😀"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON value"),
        (" \n", "no JSON value"),
        ("{", "line 1, column 2"),
        ('{"a": 1}\n{"a": ', "line 2"),
        ("{'a': 1}", "not JSON"),
        ("[" * 200 + "]" * 200, f"deeper than {MAX_DATA_DEPTH} levels"),
        ("[" * 100_000, "too deeply"),
    ],
)
def test_other_texts_are_refused_with_a_reason(text, message):
    with pytest.raises(UnreadableDocument, match=message):
        parsed(text)


def test_values_may_be_nested_up_to_the_limit():
    inner = '{"a":' * (MAX_DATA_DEPTH - 1) + "1" + "}" * (MAX_DATA_DEPTH - 1)
    assert parsed(inner).text.endswith(".a: 1")


@pytest.mark.parametrize(
    "text",
    [
        '{{"{}": [{}1]}}'.format("k" * 1_000, "[1]," * 2_000),
        '{"k":' * 90 + "[%s]" % ("{}," * 5_000 + "1") + "}" * 90,
    ],
    ids=["long name", "deep list"],
)
def test_paths_that_make_a_text_too_large_are_refused(text):
    with pytest.raises(TooLarge):
        parse_json(text.encode(), 100_000)


WORDS = st.text("abcdefg", min_size=1, max_size=6)
VALUES = st.recursive(
    WORDS | st.booleans() | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)


def leaves(value: object) -> list[str]:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in leaves(inner)]
    return [value if isinstance(value, str) else json.dumps(value)]


@given(VALUES)
def test_every_value_is_in_the_text(value):
    words = parsed(json.dumps(value)).text.replace(",", " ").replace(";", " ").split()
    for leaf in leaves(value):
        assert leaf in words
