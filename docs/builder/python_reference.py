"""Makes the Python reference: a page for each part of the SDK, from its docstrings."""

import json
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from importlib import import_module
from inspect import isclass
from pathlib import Path
from typing import Any

from hrag import errors, filters, types

_FOLDER = "reference/python"
_NAMES = "|".join(name for name, each in vars(errors).items() if isclass(each))
# The first alternatives match what stays unchanged: whole elements, and tags.
_ERRORS = re.compile(rf"<(a|code|pre|h[1-6])\b.*?</\1>|<[^>]*>|\b(?P<error>{_NAMES})\b", re.DOTALL)
_INTERNAL_FILTERS = ("check_filter", "filter_digest", "in_utc", "timestamp_of")
_VALUES = ("search", "documents", "collections", "chunks", "status")


def pages() -> dict[str, str]:
    """Returns the Markdown of each page by its path in the site."""
    clients = [
        _shown("hrag.client", members=[]),
        _shown("hrag.client.Client", inherited_members=True, show_bases=False),
        _shown("hrag.client.AsyncClient", members=[], show_bases=False),
    ]
    limits = _shown("hrag.values.limits", ("check_batch",), show_if_no_docstring=True)
    found = {
        "client": ("Clients", clients),
        "types": ("Values", [*_values(_VALUES), limits]),
        "filters": (
            "Filters",
            [_shown("hrag.filters", members=_public(filters.__all__, _INTERNAL_FILTERS))],
        ),
        "errors": (
            "Errors",
            [_shown("hrag.errors", members=_public(errors.__all__, ("outcome_of",)))],
        ),
        "answers": ("Answers", list(_values(("answers",)))),
        "context": ("Prompts", [_shown("hrag.client.context")]),
        "tools": ("Tools for agents", [_shown("hrag.client.tools")]),
    }
    return {
        f"{_FOLDER}/{name}.md": "\n\n".join([f"# {title}", *parts])
        for name, (title, parts) in found.items()
    }


def with_error_links(place: str, html: str) -> str:
    """Returns the HTML of a page; on pages of this reference, names of errors become links."""
    return _ERRORS.sub(_error_link, html) if Path(place).parent.as_posix() == _FOLDER else html


def _public(names: Sequence[str], internal: Sequence[str]) -> list[str]:
    """Returns the public names of a module in its order, without the internal ones."""
    return [name for name in names if name not in internal]


def _error_link(found: re.Match[str]) -> str:
    name = found["error"]
    return f'<a href="errors.html#hrag.errors.{name}">{name}</a>' if name else found[0]


def _shown(path: str, hidden: Sequence[str] = (), **options: Any) -> str:
    """Returns the instruction that lets mkdocstrings show an object and its public members."""
    given = {"filters": ["!^_", *(f"!^{name}$" for name in hidden)], **options}
    return f"::: {path}\n    options: {json.dumps(given)}"


def _values(modules: Sequence[str]) -> Iterator[str]:
    """Yields the instructions for the classes of some modules in `hrag.values`.

    The members of enums are shown too, although they have no docstrings.
    """
    yield "All of these are imported from `hrag.types`."
    for module in (f"hrag.values.{name}" for name in modules):
        yield _shown(module, members=[])
        for name, value in vars(import_module(module)).items():
            if isclass(value) and value.__module__ == module:
                yield _shown(
                    f"hrag.types.{name}" if name in types.__all__ else f"{module}.{name}",
                    heading_level=3,
                    show_root_full_path=False,
                    show_if_no_docstring=issubclass(value, Enum),
                )
