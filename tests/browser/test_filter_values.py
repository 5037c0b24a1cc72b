"""Filter rows are read as the command line's `--filter` reads its conditions."""

from typing import Any

import pytest
import typer

from hrag.cli.option_values import parse_filters
from hrag.filters import AllOf, Filter
from hrag.gateway.protojson import json_reader
from hrag.v1 import filter_pb2 as pb
from hrag.wire.filters import filter_from
from tests.browser.explorer import Explorer

pytestmark = pytest.mark.browser

KEYS = ("year", "title", "format", "metadata.format")
SIGNS = {"is": "=", "is_not": "!=", "at_least": ">=", "above": ">", "at_most": "<=", "below": "<"}
VALUES: tuple[str, ...] = (
    *("5", "5.0", "-0", "1e3", "1e999", "-1e999", "007", "NaN", "true", "false", "null"),
    *("", "abc", " x ", "it's", "'x'", '"5"', '"a" b', '"a', '""', '"2026-01-01"'),
    *("[]", "[null]", "[1e999]", "[[1]]", '["a", "b"]', '[1, "a", true]', "[a]", '{"a": 1}'),
    *("2026", "20260101", "2026-01-01", "2026-02-29", "2024-02-29", "2026-13-45"),
    *("2026-01-01T10:00", "2026-01-01 10:00:00", "2026-01-01T24:00", "2026-01-01T10:00:60"),
    *("2026-01-01t10:00:00z", "2026-01-01T10:00:00,5", "2026-01-01T10:00:00.123456Z"),
    *("2026-01-01T10:00+02:00", "2026-01-01T10:00:00-0230", "2026-01-01T10:60"),
)
_READ = """async (rows) => {
  const { filterMessage, valueKind } = await import("./filter_message.js");
  return rows.map((row) => {
    try {
      return [valueKind(...row), filterMessage({ join: "all", rows: [row] })];
    } catch (error) {
      return [valueKind(...row), error.code];
    }
  });
}"""


def test_values_are_read_as_the_command_line_reads_them(explorer: Explorer) -> None:
    explorer.page.goto(explorer.url)
    rows = [(key, operator, value) for key in KEYS for operator in SIGNS for value in VALUES]
    for row, (kind, message) in zip(rows, explorer.page.evaluate(_READ, rows), strict=True):
        expected = _parsed_by_the_command_line(*row)
        if expected is None:
            assert (row, kind, message) == (row, "malformed", "invalid_argument")
        else:
            assert (row, _filter_from_json(message)) == (row, expected)
            assert kind != "malformed"


def _parsed_by_the_command_line(key: str, operator: str, value: str) -> Filter | None:
    try:
        parsed = parse_filters([f"{key}{SIGNS[operator]}{value}"])
    except typer.BadParameter:
        return None
    assert isinstance(parsed, AllOf)
    return parsed.filters[0]


def _filter_from_json(message: dict[str, Any]) -> Filter:
    filled = pb.Filter()
    json_reader.fill(filled, message)
    return filter_from(filled)


@pytest.mark.parametrize(
    ("key", "operator", "value", "kind"),
    [
        ("team", "is", "platform", "text"),
        ("team", "is", '"5"', "text"),
        ("title", "is", "5", "text"),
        ("year", "is", "5", "number"),
        ("reviewed", "is_not", "true", "flag"),
        ("team", "is", '["a", "b"]', "list"),
        ("date", "below", "2026-01-01", "timestamp"),
    ],
)
def test_a_row_shows_the_kind_of_its_value(
    explorer: Explorer, key: str, operator: str, value: str, kind: str
) -> None:
    explorer.page.goto(explorer.url)
    assert explorer.page.evaluate(_READ, [(key, operator, value)])[0][0] == kind
