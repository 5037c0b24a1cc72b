"""Parsing of `--meta KEY=VALUE`."""

import pytest
import typer

from hrag.cli.options.metadata import parse_metadata


def test_values_have_types():
    given = ["团队=搜索", "year=2026", "x=-0.5", "draft=false", 'code="007"', 'tags=["a", 1]']
    given += ['author={"name": "王"}', "eq=a=b", 'empty=""', "null=null"]
    assert parse_metadata(given) == {
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
    ("given", "says"),
    [
        (["a"], "is not KEY=VALUE"),
        (["=x"], "is not KEY=VALUE"),
        (["a="], 'an empty text is ""'),
        (['a="x'], "at character 3"),
        (["a=[NaN]"], "numbers must be finite"),
        (["a=1", "a=2"], "'a' is given twice"),
    ],
)
def test_malformed_metadata_is_refused(given, says):
    with pytest.raises(typer.BadParameter) as refused:
        parse_metadata(given)
    assert says in refused.value.message
