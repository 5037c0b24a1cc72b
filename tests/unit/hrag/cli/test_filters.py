"""Parsing of `--filter` conditions."""

from datetime import UTC, datetime

import pytest
import typer

from hrag.cli.filters import parse_filters
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
        ("x=", Match("metadata.x", ("",))),
        ("lang!=en", NoneOf((Match("metadata.lang", ("en",)),))),
        ('lang!=["en",1]', NoneOf((Match("metadata.lang", ("en", 1)),))),
        ("year>=2025", Range("metadata.year", at_least=2025)),
        ("year>-0.5", Range("metadata.year", above=-0.5)),
        ("day<2026-11-21", Range("metadata.day", below=datetime(2026, 11, 21, tzinfo=UTC))),
        ("a.b<=1e3", Range("metadata.a.b", at_most=1000)),
        ("author", Exists("metadata.author")),
        ("!author", NoneOf((Exists("metadata.author"),))),
        ("title", Exists("title")),
    ],
)
def test_a_condition(text, condition):
    assert parse_filters([text]) == AllOf((condition,))


def test_conditions_are_combined_and_none_is_no_filter():
    assert parse_filters(["a", "b"]) == AllOf((Exists("metadata.a"), Exists("metadata.b")))
    assert parse_filters([]) is None


@pytest.mark.parametrize(
    "text", ["", "!", "=x", "year>x", "year>=true", "x=[]", "x=[[1]]", "a=[{}]"]
)
def test_malformed_condition_is_refused(text):
    with pytest.raises(typer.BadParameter, match=r"--help|number|list"):
        parse_filters([text])


def test_too_many_brackets_are_a_text():
    """The JSON parser raises RecursionError."""
    brackets = "[" * 100_000
    assert parse_filters([f"a={brackets}"]) == AllOf((Match("metadata.a", (brackets,)),))
