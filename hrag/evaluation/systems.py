"""Parses the systems to compare. A system is a way to search: a mode with its options.

A system may also be another tool, whose passages a file contains (`retrieved_files`).

A system is written `mode[:retrieval][:option=value]...`, for example `context`,
`standard:lexical` or `auto_merge:hybrid:merge_ratio=0.7`. The options have the names of the fields
of `hrag.types.SearchQuery`. With the option `collection`, systems can search different collections,
for example collections that were created with different settings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from hrag.evaluation.questions import first_repeated
from hrag.values.errors import InvalidArgument
from hrag.values.ids import quoted
from hrag.values.search import Retrieval, SearchMode, SearchQuery

DEFAULT_SYSTEMS = "context,small_to_big,auto_merge,standard"

# These fields of SearchQuery are not options of a system. The evaluation sets the field itself, or
# the value of the field is not a scalar.
_NOT_OPTIONS = (
    *("tenant_id", "query", "vector", "mode", "limit", "token_budget", "cut_last"),
    *("min_sequence", "filter"),
)
_TRUTH = {"true": True, "false": False}
_SCALARS = (bool, int, float, str)
_FILE = "file"


@dataclass(frozen=True, slots=True)
class System:
    """A way to search. `options` contains keyword arguments for `Client.search`.

    If the system is another tool, `mode` is None, and its only option is `file`, the path of the
    file with the passages that the tool has retrieved.
    """

    name: str
    mode: SearchMode | None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> Path | None:
        """The file with the passages of another tool; None if the system is a search."""
        return None if self.mode else Path(self.options[_FILE])

    @property
    def fills_budget(self) -> bool:
        """True if the mode fills a token budget itself, instead of returning `limit` passages."""
        return self.mode is SearchMode.CONTEXT


def parse_systems(text: str, retrieved: Sequence[str] = ()) -> tuple[System, ...]:
    """Parses `text`, the descriptions of systems, separated by commas; returns the systems.

    The systems of `retrieved`, each written `name=file`, are other tools and come last. If a
    description is invalid, raises InvalidArgument, which names the invalid part.
    """
    searches = [parse_system(part.strip()) for part in text.split(",") if part.strip()]
    if not searches:
        raise InvalidArgument(
            f"compare is {quoted(text)}; it must name one system or more, as in {DEFAULT_SYSTEMS}",
            field="compare",
        )
    systems = (*searches, *map(_parse_retrieved, retrieved))
    repeated = first_repeated(system.name for system in systems)
    if repeated is not None:
        raise InvalidArgument(f"compare has the system {repeated!r} twice", field="compare")
    return systems


def _parse_retrieved(text: str) -> System:
    name, _, file = text.partition("=")
    if not name.strip() or not file:
        raise InvalidArgument(
            f"retrieved is {quoted(text)}; it must be NAME=FILE, as in faiss=faiss.jsonl",
            field="retrieved",
        )
    return System(name.strip(), None, {_FILE: file})


def parse_system(text: str) -> System:
    """Returns the system that `text`, written `mode[:retrieval][:option=value]...`, describes.

    Raises InvalidArgument if the mode or an option is invalid.
    """
    mode, *parts = text.split(":")
    options: dict[str, Any] = {}
    for part in parts:
        name, sign, value = part.partition("=")
        if not sign:
            name, value = "retrieval", part
        if name in options:
            problem = f"compare has the option {name} twice in {quoted(text)}"
            raise InvalidArgument(problem, field="compare")
        options[name] = _parse_option(name, value)
    return System(text, _choice("mode", SearchMode, mode), options)


def baseline_of(systems: Sequence[System], name: str) -> System:
    """Returns the system with which the other systems are compared.

    This is the system with the name `name`, or the last system if `name` is empty. Raises
    InvalidArgument if no system has this name.
    """
    if not name:
        return systems[-1]
    baseline = next((system for system in systems if system.name == name), None)
    if baseline is None:
        raise InvalidArgument(
            f"baseline is {quoted(name)}; it must be one of {_list(systems)}", field="baseline"
        )
    return baseline


_MODE_WORDS = {
    SearchMode.STANDARD: "standard retrieval: the small chunks (leaves) that match, found by {}",
    SearchMode.SMALL_TO_BIG: "hierarchical: the larger chunks around the leaves, found by {}",
    SearchMode.AUTO_MERGE: "hierarchical: larger chunks where enough leaves match, found by {}",
    SearchMode.SENTENCE_WINDOW: "the best sentences with their neighbours, found by {}",
    SearchMode.SUMMARY_FIRST: "hierarchical: larger chunks from the sections with the best "
    "summaries, found by {}",
    SearchMode.CONTEXT: "hierarchical: the leaves that answer best, joined with their neighbours, "
    "found by {}",
}
_RETRIEVAL_WORDS = {
    Retrieval.HYBRID: "words and vectors",
    Retrieval.DENSE: "vectors alone",
    Retrieval.LEXICAL: "words alone",
}


def describe(system: System) -> str:
    """Returns what a system does, in a few words for readers who do not know the modes."""
    if system.mode is None:
        return f"another tool, whose passages are in the file {system.file}"
    retrieval = system.options.get("retrieval") or Retrieval.HYBRID
    return _MODE_WORDS[system.mode].format(_RETRIEVAL_WORDS[retrieval])


def _list(systems: Sequence[System]) -> str:
    return ", ".join(system.name for system in systems)


def option_types() -> dict[str, type]:
    """Returns the type of each option that a system may have, by the name of the option."""
    hints = get_type_hints(SearchQuery)
    types = {name: _scalar(hint) for name, hint in hints.items() if name not in _NOT_OPTIONS}
    return {name: kind for name, kind in types.items() if kind is not None}


def _scalar(hint: Any) -> type | None:
    """Returns the scalar type of a type hint; for example `int` for `int` and for `int | None`.

    Returns None for lists and other types that are not scalars.
    """
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        hint = kinds[0] if len(kinds) == 1 else None
    return hint if isinstance(hint, type) and issubclass(hint, _SCALARS) else None


def _parse_option(name: str, value: str) -> Any:
    types = option_types()
    if name not in types:
        raise InvalidArgument(
            f"compare has the option {quoted(name)}; it must be one of {', '.join(types)}",
            field="compare",
        )
    kind: Any = types[name]
    if issubclass(kind, StrEnum):
        return _choice(name, kind, value)
    try:
        return _TRUTH[value] if kind is bool else kind(value)
    except (KeyError, ValueError):
        raise _refusal(name, value, f"a value of type {kind.__name__}") from None


def _choice(name: str, kind: type[StrEnum], value: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise _refusal(name, value, f"one of {', '.join(kind)}") from None


def _refusal(name: str, value: str, allowed: str) -> InvalidArgument:
    return InvalidArgument(
        f"compare has {name} {quoted(value)}; it must be {allowed}", field="compare"
    )
