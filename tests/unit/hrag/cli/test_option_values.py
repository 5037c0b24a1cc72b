"""`--where` conditions and `--meta KEY=VALUE` are parsed.

The error for a malformed value says at which character the mistake is.
"""

from datetime import UTC, datetime

import pytest
import typer

from hrag.cli.option_values import parse_filters, parse_metadata
from hrag.filters import AllOf, Exists, Match, NoneOf, Range


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("lang=en", Match("metadata.lang", ("en",))),
        ("metadata.title=x", Match("metadata.title", ("x",))),
        ("title=All, about = cats", Match("title", ("All, about = cats",))),
        ("title=2025", Match("title", ("2025",))),
        ('document_id=["a", "b"]', Match("document_id", ("a", "b"))),
        ("year = 2025", Match("metadata.year", (2025,))),
        ('year="2025"', Match("metadata.year", ("2025",))),
        ("draft=true", Match("metadata.draft", (True,))),
        ("x=null", Match("metadata.x", ("null",))),
        ('x=""', Match("metadata.x", ("",))),
        ('title="=x"', Match("title", ("=x",))),
        ("title= x", Match("title", ("x",))),
        ("title=true", Match("title", ("true",))),
        ("x=NaN", Match("metadata.x", ("NaN",))),
        ("标签=中文", Match("metadata.标签", ("中文",))),
        ("a=!b", Match("metadata.a", ("!b",))),
        ("lang!=en", NoneOf((Match("metadata.lang", ("en",)),))),
        ('lang!=["en",1]', NoneOf((Match("metadata.lang", ("en", 1)),))),
        ("year>=2025", Range("metadata.year", at_least=2025)),
        ("year>-0.5", Range("metadata.year", above=-0.5)),
        ("day<2026-11-21", Range("metadata.day", below=datetime(2026, 11, 21, tzinfo=UTC))),
        ("a.b<=1e3", Range("metadata.a.b", at_most=1000)),
        ("author", Exists("metadata.author")),
        ("!author", NoneOf((Exists("metadata.author"),))),
        ("title", Exists("title")),
        ("format=pdf", Match("format", ("pdf",))),
        ('format!=["docx","md"]', NoneOf((Match("format", ("docx", "md")),))),
        ("format=123", Match("format", ("123",))),
        ("mime_type=text/html; charset=utf-8", Match("mime_type", ("text/html; charset=utf-8",))),
        ("metadata.format=A4", Match("metadata.format", ("A4",))),
        ("metadata.mime_type", Exists("metadata.mime_type")),
        ("formats=pdf", Match("metadata.formats", ("pdf",))),
    ],
)
def test_a_condition_is_parsed(text, condition):
    assert parse_filters([text]) == AllOf((condition,))


def test_conditions_are_combined_and_without_conditions_there_is_no_filter():
    assert parse_filters(["a", "b"]) == AllOf((Exists("metadata.a"), Exists("metadata.b")))
    assert parse_filters([]) is None


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("!", 2, "a key is missing"),
        ("=x", 1, "a key is missing"),
        ("==x", 1, "a key is missing"),
        ("metadata.=x", 10, "a key is missing"),
        ("!!a", 2, "! is not allowed in a key"),
        ("!a=b", 1, "! is not allowed in a key"),
        ('"a"=b', 1, '" is not allowed in a key'),
        ("lang=", 6, 'an empty text is ""'),
        ("lang= ", 7, 'an empty text is ""'),
        ("lang==", 6, "== is not a comparison"),
        ("lang==en", 6, "== is not a comparison"),
        ("year=>5", 6, "=> is not a comparison"),
        ("year<>5", 6, "<> is not a comparison"),
        ("year>x", 6, "neither a number nor a date"),
        ("year>=true", 7, "neither a number nor a date"),
        ('year>="x', 7, "does not end"),
        ('lang="en', 6, "does not end"),
        ('lang="en" x', 11, "'x' follows the end"),
        ("lang='en'", 6, "double quotes"),
        ('lang=["en"', 11, "must be valid JSON"),
        ("title=[draft] x", 8, "must be valid JSON"),
        ("x=[]", 3, "must contain numbers, true, false or texts"),
        ("x=[[1]]", 3, "must contain numbers, true, false or texts"),
        ("x=[NaN]", 3, "numbers must be finite"),
        ("a=[{}]", 3, "must contain numbers, true, false or texts"),
        ("a=" + "[" * 100_000, 3, "nested too deep"),
    ],
)
def test_a_malformed_condition_is_refused_with_its_position(text, position, says):
    with pytest.raises(typer.BadParameter) as refused:
        parse_filters(["fine", text])
    assert f": at character {position}: " in refused.value.message
    assert says in refused.value.message


def test_an_empty_condition_is_refused():
    with pytest.raises(typer.BadParameter, match="'': a key is missing"):
        parse_filters([""], "--where")


def test_metadata_values_have_types():
    options = ["团队=搜索", "year=2026", "x=-0.5", "draft=false", 'code="007"', 'tags=["a", 1]']
    options += ['author={"name": "王"}', "eq=a=b", 'empty=""', "null=null"]
    assert parse_metadata(options) == {
        "团队": "搜索",
        "year": 2026,
        "x": -0.5,
        "draft": False,
        "code": "007",
        "tags": ["a", 1],
        "author": {"name": "王"},
        "eq": "a=b",
        "empty": "",
        "null": "null",
    }


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["a"], "is not KEY=VALUE"),
        (["=x"], "is not KEY=VALUE"),
        (["a="], 'an empty text is ""'),
        (['a="x'], "at character 3"),
        (["a=[NaN]"], "numbers must be finite"),
        (["a=1", "a=2"], "'a' is given twice"),
    ],
)
def test_malformed_metadata_is_refused(options, says):
    with pytest.raises(typer.BadParameter) as refused:
        parse_metadata(options)
    assert says in refused.value.message
