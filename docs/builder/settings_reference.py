"""Makes the settings reference: the text of .env.example, with the limits in hrag.config.

In .env.example, a line `## Title` begins a section, and settings follow the comment that
explains them.
"""

import re
from functools import cache
from itertools import groupby
from math import log2
from posixpath import relpath
from typing import Any, TypeAlias

from docs.builder.repository import ROOT
from hrag.config import GatewaySettings, IndexerSettings, RetrieverSettings

_PAGE = "reference/settings.md"
Schema: TypeAlias = dict[str, Any]

_SCHEMAS: dict[str, Schema] = {
    "indexer": IndexerSettings.model_json_schema(),
    "retriever": RetrieverSettings.model_json_schema(),
    "gateway": GatewaySettings.model_json_schema(),
}
_HEADING = "## "
_LARGE = 1 << 20
_ASSIGNED = re.compile(r"(?P<name>[A-Z][A-Z0-9_]*)=(?P<default>\S*)(?:\s+# (?P<remark>.*))?")
_NAMED = re.compile(r"(?<![\w`])(?:HRAG|HIERARCHICAL|OPENAI|SMALL_TO_BIG|OTEL)_[A-Z_]*[A-Z]\b")
_CODE = re.compile(r"(?<!\[)`([A-Z_]+)`")
_TABLE = "| setting | default | allowed | read by |\n| --- | --- | --- | --- |"


def pages() -> dict[str, str]:
    """Returns the Markdown of the page by its path in the site."""
    parts = ["# Settings"]
    for kind, group in groupby(_lines(), _kind):
        parts += [""] if kind is None else _RENDERED[kind](list(group))
    return {_PAGE: "\n".join(parts) + "\n"}


def with_setting_links(markdown: str, folder: str) -> str:
    """Returns the text of a page in `folder` with links for settings outside of code."""
    return _NAMED.sub(lambda name: _link(name[0], name[0], folder), markdown)


def with_code_links(markdown: str, folder: str) -> str:
    """Returns the text of a page in `folder` with links for settings in backticks.

    Headings, the texts of other links, and names that are not in .env.example do not change.
    """

    def linked(code: re.Match[str]) -> str:
        return _link(code[0], code[1], folder) if code[1] in _names() else code[0]

    lines = markdown.splitlines(keepends=True)
    return "".join(line if line.startswith("#") else _CODE.sub(linked, line) for line in lines)


def _link(text: str, name: str, folder: str) -> str:
    return f"[{text}]({relpath(_PAGE, folder)}#{name.lower()})"


@cache
def _names() -> set[str]:
    return {found["name"] for line in _lines() if (found := _ASSIGNED.fullmatch(line))}


def _lines() -> list[str]:
    return (ROOT / ".env.example").read_text("utf-8").splitlines()


def _kind(line: str) -> str | None:
    if not line:
        return None
    if line.startswith(_HEADING):
        return "heading"
    return "comment" if line.startswith("#") else "settings"


def _headings(lines: list[str]) -> list[str]:
    return [*lines, ""]


def _comments(lines: list[str]) -> list[str]:
    return [*(line.removeprefix("#").strip() for line in lines), ""]


def _settings(lines: list[str]) -> list[str]:
    return [_TABLE, *map(_row, lines), ""]


_RENDERED = {"heading": _headings, "comment": _comments, "settings": _settings}


def _row(line: str) -> str:
    setting = _ASSIGNED.fullmatch(line)
    if setting is None:
        raise ValueError(f".env.example has a line that is no setting: {line!r}")
    name = setting["name"]
    services = [service for service, known in _SCHEMAS.items() if name in known["properties"]]
    schemas = [_SCHEMAS[service] for service in services]
    allowed = dict.fromkeys(_allowed(known, known["properties"][name]) for known in schemas)
    default = f"`{setting['default']}`" if setting["default"] else ""
    rules = "; ".join(filter(None, [*allowed, setting["remark"]]))
    return f"| `{name}`{{ #{name.lower()} }} | {default} | {rules} | {_readers(services)} |"


def _readers(services: list[str]) -> str:
    return "all" if len(services) == len(_SCHEMAS) else ", ".join(services)


def _allowed(schema: Schema, value: Schema) -> str:
    """Returns the values that a setting's type allows, as Markdown; empty if it allows any."""
    for each in value.get("anyOf", ())[:1]:  # The second one is null, for an empty setting.
        return _allowed(schema, each)
    if "$ref" in value:
        return _allowed(schema, schema["$defs"][value["$ref"].rpartition("/")[2]])
    if value.get("type") == "boolean":
        return "`true`, `false`"
    if "maximum" in value:
        low = (
            _number(value["minimum"]) if "minimum" in value else f"over {value['exclusiveMinimum']}"
        )
        return f"{low} to {_number(value['maximum'])}"
    choices = value.get("enum") or [value[key] for key in ("const",) if key in value]
    return ", ".join(f"`{choice}`" for choice in choices)


def _number(value: float) -> str:
    """Returns the number with separators; large powers of two are written as powers."""
    is_power = value >= _LARGE and log2(value).is_integer()
    return f"2^{log2(value):.0f}" if is_power else f"{value:,}"
