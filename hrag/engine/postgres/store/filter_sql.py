"""Filters as SQL: statements that select the documents that pass, by ordinal.

A filter becomes set operations on the table of filter terms. All simple conditions of which one
must hold are looked up together: values in one array, ranges in another, merged where they
overlap, so that no term is read twice. A filter with more than some tens of set operations
would take PostgreSQL long to plan; its parts are evaluated by a statement each, and combined
here.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from psycopg import sql

from hrag.engine.common.filter_terms import all_terms, field_prefix, term, terms_between
from hrag.engine.common.sorted_sets import Ordinals, difference, intersection, union
from hrag.engine.postgres.store.arrays import bigints, bigints_in, binaries, texts
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.queries import is_storable
from hrag.values.deadline import NEVER, Deadline
from hrag.values.filters import DOCUMENT_ID, AllOf, AnyOf, Exists, Filter, Match, NoneOf, Range

_MOST_SELECTS = 64  # Of one statement: planning them takes some milliseconds.

_OF_COLLECTION = sql.SQL("tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s")
_ALL = sql.SQL("SELECT ordinal FROM hrag.documents WHERE {}").format(_OF_COLLECTION)
_NONE = sql.SQL("SELECT ordinal FROM hrag.documents WHERE {} AND false").format(_OF_COLLECTION)
_BY_ID = sql.SQL("{} AND document_id = ANY({})")
_BY_TERM = sql.SQL("SELECT ordinal FROM hrag.terms WHERE {} AND term = ANY({})")
# OFFSET 0 keeps the planner from comparing each range with each term of the collection.
_BY_RANGE = sql.SQL(
    "SELECT ordinal FROM unnest({}, {}) AS wanted (first, after) CROSS JOIN LATERAL ("
    "SELECT ordinal FROM hrag.terms WHERE {} AND term >= first AND term < after OFFSET 0) AS found"
)
_GIVEN = sql.SQL("SELECT unnest({})")
_AS_ARRAY = sql.SQL("SELECT array_agg(DISTINCT ordinal ORDER BY ordinal) FROM ({}) AS passing")

_TermRange = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Selection:
    """A statement that selects the column `ordinal` of the documents that pass a filter.

    It may return one twice. Its parameters are named; `tenant_id` and `collection_id` are among
    them, all others begin with `filter_`.
    """

    statement: sql.Composed
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Any:
    """At least one holds of these terms, ranges of terms, ids, or inner conditions."""

    terms: tuple[bytes, ...] = ()
    ranges: tuple[_TermRange, ...] = ()
    ids: tuple[str, ...] = ()
    everything: bool = False
    inner: tuple["_All", ...] = ()
    size: int = 1
    """How many SELECTs it takes."""


@dataclass(frozen=True, slots=True)
class _All:
    """Each of `wanted` holds, which may be none, and `unwanted` does not."""

    wanted: tuple[_Any, ...]
    unwanted: _Any | None
    size: int


def selection(
    connection: Connection,
    tenant_id: str,
    collection_id: int,
    given: Filter,
    deadline: Deadline = NEVER,
) -> Selection:
    """Returns a statement for a filter, which has been checked.

    Runs statements only if the filter is too large for one. Raises DeadlineExceeded or
    Cancelled.
    """
    parsed = _any_of([given])
    evaluation = _Evaluation(connection, tenant_id, collection_id, deadline)
    if parsed.size <= _MOST_SELECTS:
        return evaluation.selection_of(parsed)
    found = evaluation.any_of(parsed)
    parameters = {"tenant_id": tenant_id, "collection_id": collection_id}
    given_ordinals = _GIVEN.format(sql.Placeholder("filter_ordinals")) + sql.SQL(" AS ordinal")
    return Selection(given_ordinals, parameters | {"filter_ordinals": bigints(found)})


def selected(
    connection: Connection,
    tenant_id: str,
    collection_id: int,
    given: Filter,
    deadline: Deadline = NEVER,
) -> Ordinals:
    """Returns the ordinals of the documents that pass a filter, which has been checked.

    Ascending. Raises DeadlineExceeded or Cancelled.
    """
    return _Evaluation(connection, tenant_id, collection_id, deadline).any_of(_any_of([given]))


class _Evaluation:
    """Evaluates conditions in the snapshot of a transaction."""

    def __init__(
        self, connection: Connection, tenant_id: str, collection_id: int, deadline: Deadline
    ) -> None:
        self._connection = connection
        self._collection = {"tenant_id": tenant_id, "collection_id": collection_id}
        self._deadline = deadline

    def selection_of(self, given: _Any) -> Selection:
        parameters: dict[str, Any] = dict(self._collection)
        return Selection(_statement_any(given, parameters), parameters)

    def any_of(self, given: _Any) -> Ordinals:
        if given.size <= _MOST_SELECTS:
            return self._run(given)
        simple = _Any(given.terms, given.ranges, given.ids, given.everything)
        sets = [self._run(simple)]
        for part in _parts(given.inner):
            small = sum(each.size for each in part) <= _MOST_SELECTS
            found = self._run(_Any(inner=tuple(part))) if small else self._all_of(part[0])
            sets = [union([*sets, found])]
        return sets[0]

    def _all_of(self, given: _All) -> Ordinals:
        """Too large for one statement."""
        sets = []
        for part in _parts(given.wanted):
            small = sum(each.size for each in part) <= _MOST_SELECTS
            both = _Any(inner=(_All(tuple(part), None, 0),))
            sets.append(self._run(both) if small else self.any_of(part[0]))
            sets = [reduce(intersection, sets)]
        found = sets[0] if sets else self._run(_Any(everything=True))
        return found if given.unwanted is None else difference(found, self.any_of(given.unwanted))

    def _run(self, given: _Any) -> Ordinals:
        self._deadline.check("filtering")
        found = self.selection_of(given)
        cursor = self._connection.execute(_AS_ARRAY.format(found.statement), found.parameters)
        result = cursor.pgresult
        assert result is not None
        return bigints_in(result.get_value(0, 0)).astype(np.uint64)


def _parts(conditions: Sequence[Any]) -> Iterator[list[Any]]:
    """Consecutive conditions that fit in one statement; one alone may not."""
    part: list[Any] = []
    for each in conditions:
        if part and sum(one.size for one in part) + each.size > _MOST_SELECTS:
            yield part
            part = []
        part.append(each)
    if part:
        yield part


# Conditions


def _any_of(filters: Iterable[Filter]) -> _Any:
    terms: set[bytes] = set()
    ranges: list[_TermRange] = []
    ids: set[str] = set()
    inner: list[_All] = []
    everything = False
    for each in _flattened(filters, AnyOf):
        match each:
            case AllOf(parts):
                inner.append(_all_of(parts))
            case NoneOf(parts):
                inner.append(_all_of((each,)))
            case Match(field, values) if field == DOCUMENT_ID:
                ids.update(name for name in map(str, values) if is_storable(name))
            case Exists(field) if field == DOCUMENT_ID:
                everything = True
            case Match(field, values):
                prefix = field_prefix(field)
                terms.update(term(prefix, value) for value in values)
            case Range():
                ranges.append(terms_between(field_prefix(each.field), each))
            case Exists(field):
                ranges.append(all_terms(field_prefix(field)))
    merged = tuple(_merged(ranges))
    simple = bool(terms) + bool(merged) + bool(ids) + everything
    size = max(1, simple + sum(each.size for each in inner))
    return _Any(tuple(sorted(terms)), merged, tuple(sorted(ids)), everything, tuple(inner), size)


def _flattened(filters: Iterable[Filter], kind: type[AllOf] | type[AnyOf]) -> Iterator[Filter]:
    """The filters, with what is in those of a kind in place of them, however deep."""
    for each in filters:
        if isinstance(each, kind):
            yield from _flattened(each.filters, kind)
        else:
            yield each


def _all_of(filters: Iterable[Filter]) -> _All:
    wanted: list[_Any] = []
    refused: list[Filter] = []
    for each in _flattened(filters, AllOf):
        if isinstance(each, NoneOf):
            refused.extend(each.filters)
        else:
            wanted.append(_any_of([each]))
    unwanted = _any_of(refused) if refused else None
    size = sum(each.size for each in wanted) or 1
    return _All(tuple(wanted), unwanted, size + (unwanted.size if unwanted else 0))


def _merged(ranges: Iterable[_TermRange]) -> Iterator[_TermRange]:
    """The union of half-open ranges, ascending; empty ones are left out."""
    start, end = b"", b""
    for first, after in sorted(each for each in ranges if each[0] < each[1]):
        if first > end:
            if start < end:
                yield start, end
            start, end = first, after
        end = max(end, after)
    if start < end:
        yield start, end


# Statements


def _statement_any(given: _Any, parameters: dict[str, Any]) -> sql.Composed:
    parts: list[sql.Composed] = []
    if given.everything:
        parts.append(_ALL)
    if given.ids:
        parts.append(_BY_ID.format(_ALL, _placed(texts(given.ids), parameters)))
    if given.terms:
        terms = _placed(binaries(given.terms), parameters)
        parts.append(_BY_TERM.format(_OF_COLLECTION, terms))
    if given.ranges:
        bounds = (binaries([each[side] for each in given.ranges]) for side in (0, 1))
        placed = [_placed(each, parameters) for each in bounds]
        parts.append(_BY_RANGE.format(*placed, _OF_COLLECTION))
    parts += [_statement_all(each, parameters) for each in given.inner]
    return _combined(" UNION ", parts or [_NONE])


def _statement_all(given: _All, parameters: dict[str, Any]) -> sql.Composed:
    wanted = [_statement_any(each, parameters) for each in given.wanted]
    found = _combined(" INTERSECT ", wanted or [_ALL])
    if given.unwanted is None:
        return found
    return _combined(" EXCEPT ", [found, _statement_any(given.unwanted, parameters)])


def _combined(operator: str, parts: Sequence[sql.Composed]) -> sql.Composed:
    if len(parts) == 1:
        return parts[0]
    inside = [sql.SQL("({})").format(part) for part in parts]
    return sql.SQL(operator).join(inside)


def _placed(value: bytes, parameters: dict[str, Any]) -> sql.Placeholder:
    """Adds a parameter; returns its place."""
    name = f"filter_{len(parameters)}"
    parameters[name] = value
    return sql.Placeholder(name)
