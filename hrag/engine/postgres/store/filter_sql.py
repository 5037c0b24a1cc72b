"""Translates filters to SQL queries that return the ordinals of the matching documents.

A filter becomes set operations on the table of filter terms, `hrag.terms`. Simple conditions that
are joined by OR are looked up together: all their values are in one array, and all their ranges in
another array. Ranges that overlap are merged, so no term is read twice. PostgreSQL would need long
to plan a statement with more than some tens of set operations. Therefore a larger filter is split:
separate statements evaluate its conditions, and this module combines their results. So is a filter
that combines many ranges by AND: each SELECT would read all documents within its range, and ranges
that overlap would be read again and again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from psycopg import sql

from hrag.engine.common.filter_terms import (
    TermRange,
    all_terms,
    field_prefix,
    matching_terms,
    merged_ranges,
    terms_between,
)
from hrag.engine.common.range_reader import RangeReader
from hrag.engine.common.sorted_sets import Ordinals, difference, intersection, union
from hrag.engine.postgres.store.arrays import bigints, bigints_in, binaries, texts
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.queries import is_storable
from hrag.values.deadline import NEVER, Deadline
from hrag.values.filters import DOCUMENT_ID, AllOf, AnyOf, Exists, Filter, Match, NoneOf, Range

# The statement for a filter has at most this many SELECTs, because PostgreSQL already needs some
# milliseconds to plan that many.
_MAX_SELECTS = 64
# In the statement for a filter, at most this many SELECTs read ranges that are combined by AND.
# More ranges are read once each, by other statements.
_MAX_RANGE_SELECTS = 4

_COLLECTION_CONDITION = sql.SQL("tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s")
_ALL = sql.SQL("SELECT ordinal FROM hrag.documents WHERE {}").format(_COLLECTION_CONDITION)
_NONE = sql.SQL("SELECT ordinal FROM hrag.documents WHERE {} AND false").format(
    _COLLECTION_CONDITION
)
_BY_ID = sql.SQL("{} AND document_id = ANY({})")
_BY_TERM = sql.SQL("SELECT ordinal FROM hrag.terms WHERE {} AND term = ANY({})")
# OFFSET 0 prevents a plan that compares each range with each term of the collection.
_BY_RANGE = sql.SQL(
    "SELECT ordinal FROM unnest({}, {}) AS bounds (first, after) CROSS JOIN LATERAL ("
    "SELECT ordinal FROM hrag.terms WHERE {} AND term >= first AND term < after OFFSET 0"
    ") AS matching"
)
_FROM_ARRAY = sql.SQL("SELECT unnest({})")
_AS_ARRAY = sql.SQL("SELECT array_agg(DISTINCT ordinal ORDER BY ordinal) FROM ({}) AS passing")


@dataclass(frozen=True, slots=True)
class FilterQuery:
    """An SQL query that returns the column `ordinal` of the documents that pass a filter.

    Several rows may have the same ordinal. The names of the parameters are `tenant_id`,
    `collection_id`, and others that begin with `filter_`.
    """

    statement: sql.Composed
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Disjunction:
    """A condition that is true for a document if at least one of its members is true for it.

    The members are filter terms, ranges of filter terms, document ids, the condition that every
    document passes (`all_documents`), and conjunctions.
    """

    terms: tuple[bytes, ...] = ()
    ranges: tuple[TermRange, ...] = ()
    ids: tuple[str, ...] = ()
    all_documents: bool = False
    conjunctions: tuple["_Conjunction", ...] = ()
    select_count: int = 1
    """The count of SELECTs in the query for this condition."""


@dataclass(frozen=True, slots=True)
class _Conjunction:
    """A condition that is true if all of `required` are true and `excluded` is false.

    `required` may be empty, and `excluded` may be None. `select_count` is the count of SELECTs in
    the query for this condition.
    """

    required: tuple[_Disjunction, ...]
    excluded: _Disjunction | None
    select_count: int


def filter_query(
    connection: Connection,
    tenant_id: str,
    collection_id: int,
    filter: Filter,
    deadline: Deadline = NEVER,
    *,
    max_selects: int = _MAX_SELECTS,
) -> FilterQuery:
    """Returns an SQL query for the documents that pass a filter, which must be valid.

    The query has at most `max_selects` SELECTs. If the filter would need more, the function
    evaluates it by other statements first, and the query contains the ordinals that they returned.
    Raises DeadlineExceeded or Cancelled.
    """
    parsed = _parse_any([filter])
    evaluation = _Evaluation(connection, tenant_id, collection_id, deadline, max_selects, parsed)
    if evaluation.is_one_statement([parsed]):
        return evaluation.query_of(parsed)
    ordinals = evaluation.evaluate_any(parsed)
    parameters = {"tenant_id": tenant_id, "collection_id": collection_id}
    statement = _FROM_ARRAY.format(sql.Placeholder("filter_ordinals")) + sql.SQL(" AS ordinal")
    return FilterQuery(statement, parameters | {"filter_ordinals": bigints(ordinals)})


def matching_ordinals(
    connection: Connection,
    tenant_id: str,
    collection_id: int,
    filter: Filter,
    deadline: Deadline = NEVER,
    *,
    max_selects: int = _MAX_SELECTS,
) -> Ordinals:
    """Returns the ordinals of the documents that pass a filter, in ascending order.

    The filter must be valid. Each statement has at most `max_selects` SELECTs. Raises
    DeadlineExceeded or Cancelled.
    """
    parsed = _parse_any([filter])
    evaluation = _Evaluation(connection, tenant_id, collection_id, deadline, max_selects, parsed)
    return evaluation.evaluate_any(parsed)


class _Evaluation:
    """Evaluates conditions on the documents of one collection, in the snapshot of a transaction."""

    def __init__(
        self,
        connection: Connection,
        tenant_id: str,
        collection_id: int,
        deadline: Deadline,
        max_selects: int,
        filter: _Disjunction,
    ) -> None:
        """Creates the evaluation of `filter` and its parts; executes no statement."""
        self._connection = connection
        self._collection = {"tenant_id": tenant_id, "collection_id": collection_id}
        self._deadline = deadline
        self._max_selects = max_selects
        # Reads the ranges of a filter that combines too many of them for one statement.
        self._ranges: RangeReader | None = None
        if _range_selects(filter.conjunctions) > _MAX_RANGE_SELECTS:
            self._ranges = RangeReader(list(_ranges_in([filter])), self._read_range)

    def is_one_statement(self, conditions: Sequence["_Disjunction | _Conjunction"]) -> bool:
        """Returns True if a single statement may evaluate these conditions."""
        if self._ranges is not None and _range_selects(conditions):
            return False
        return sum(condition.select_count for condition in conditions) <= self._max_selects

    def query_of(self, condition: _Disjunction) -> FilterQuery:
        parameters: dict[str, Any] = dict(self._collection)
        return FilterQuery(_build_any(condition, parameters), parameters)

    def evaluate_any(self, condition: _Disjunction) -> Ordinals:
        if self.is_one_statement([condition]):
            return self._run(condition)
        simple = replace(condition, conjunctions=())
        # After each iteration of the loop, `sets` has a single element: the union of the ordinals
        # that all statements so far returned.
        sets = [self._evaluate_simple(simple)]
        for batch in _batches(condition.conjunctions, self._max_selects):
            if self.is_one_statement(batch):
                sets.append(self._run(_Disjunction(conjunctions=tuple(batch))))
            else:
                sets += map(self._evaluate_all, batch)
            sets = [union(sets)]
        return sets[0]

    def _evaluate_simple(self, condition: _Disjunction) -> Ordinals:
        """Evaluates a disjunction without conjunctions."""
        if self._ranges is None or not condition.ranges:
            return self._run(condition)
        sets = [self._ranges.ordinals(bounds) for bounds in condition.ranges]
        others = replace(condition, ranges=())
        if others.terms or others.ids or others.all_documents:
            sets.append(self._run(others))
        return union(sets)

    def _evaluate_all(self, condition: _Conjunction) -> Ordinals:
        """Evaluates a conjunction by several statements, because it is too large for one.

        Conditions without ranges are evaluated first. If no document is left, the other conditions
        are not evaluated.
        """
        sets: list[Ordinals] = []
        required = sorted(condition.required, key=lambda part: _range_selects([part]))
        for batch in _batches(required, self._max_selects):
            evaluate, parts = self.evaluate_any, batch
            if self.is_one_statement(batch):
                joined = _Conjunction(tuple(batch), None, 0)
                evaluate, parts = self._run, [_Disjunction(conjunctions=(joined,))]
            for part in parts:
                sets = [reduce(intersection, [*sets, evaluate(part)])]
                if not len(sets[0]):
                    return sets[0]
        ordinals = sets[0] if sets else self._run(_Disjunction(all_documents=True))
        return (
            ordinals
            if condition.excluded is None
            else difference(ordinals, self.evaluate_any(condition.excluded))
        )

    def _read_range(self, start: bytes, end: bytes) -> Ordinals:
        return self._run(_Disjunction(ranges=((start, end),)))

    def _run(self, condition: _Disjunction) -> Ordinals:
        self._deadline.check("filtering")
        query = self.query_of(condition)
        cursor = self._connection.execute(_AS_ARRAY.format(query.statement), query.parameters)
        result = cursor.pgresult
        assert result is not None
        return bigints_in(result.get_value(0, 0)).astype(np.uint64)


def _range_selects(conditions: Iterable[_Disjunction | _Conjunction]) -> int:
    """Returns how many SELECTs read ranges in the statement for these conditions."""
    count = 0
    for condition in conditions:
        if isinstance(condition, _Disjunction):
            count += bool(condition.ranges) + _range_selects(condition.conjunctions)
        else:
            count += _range_selects(_parts_of(condition))
    return count


def _ranges_in(conditions: Iterable[_Disjunction | _Conjunction]) -> Iterator[TermRange]:
    """Yields the ranges in these conditions, at any depth."""
    for condition in conditions:
        if isinstance(condition, _Disjunction):
            yield from condition.ranges
            yield from _ranges_in(condition.conjunctions)
        else:
            yield from _ranges_in(_parts_of(condition))


def _parts_of(condition: _Conjunction) -> tuple[_Disjunction, ...]:
    excluded = () if condition.excluded is None else (condition.excluded,)
    return (*condition.required, *excluded)


def _batches(conditions: Sequence[Any], max_selects: int) -> Iterator[list[Any]]:
    """Yields batches of consecutive conditions, each with at most `max_selects` SELECTs in total.

    A condition that alone has more SELECTs than `max_selects` is the only one in its batch.
    """
    batch: list[Any] = []
    for condition in conditions:
        if (
            batch
            and sum(member.select_count for member in batch) + condition.select_count > max_selects
        ):
            yield batch
            batch = []
        batch.append(condition)
    if batch:
        yield batch


# The functions below translate filters to conditions.


def _parse_any(filters: Iterable[Filter]) -> _Disjunction:
    terms: set[bytes] = set()
    ranges: list[TermRange] = []
    ids: set[str] = set()
    conjunctions: list[_Conjunction] = []
    all_documents = False
    for filter in _flatten(filters, AnyOf):
        match filter:
            case AllOf(parts):
                conjunctions.append(_parse_all(parts))
            case NoneOf(parts):
                conjunctions.append(_parse_all((filter,)))
            case Match(field, values) if field == DOCUMENT_ID:
                ids.update(name for name in map(str, values) if is_storable(name))
            case Exists(field) if field == DOCUMENT_ID:
                all_documents = True
            case Match():
                terms |= matching_terms(filter)
            case Range():
                ranges.append(terms_between(field_prefix(filter.field), filter))
            case Exists(field):
                ranges.append(all_terms(field_prefix(field)))
    merged = tuple(merged_ranges(ranges))
    simple_count = bool(terms) + bool(merged) + bool(ids) + all_documents
    select_count = max(
        1, simple_count + sum(conjunction.select_count for conjunction in conjunctions)
    )
    return _Disjunction(
        tuple(sorted(terms)),
        merged,
        tuple(sorted(ids)),
        all_documents,
        tuple(conjunctions),
        select_count,
    )


def _flatten(filters: Iterable[Filter], kind: type[AllOf] | type[AnyOf]) -> Iterator[Filter]:
    """Yields the filters; replaces each filter of class `kind` by its members, at any depth."""
    for filter in filters:
        if isinstance(filter, kind):
            yield from _flatten(filter.filters, kind)
        else:
            yield filter


def _parse_all(filters: Iterable[Filter]) -> _Conjunction:
    required: list[_Disjunction] = []
    negated: list[Filter] = []
    for filter in _flatten(filters, AllOf):
        if isinstance(filter, NoneOf):
            negated.extend(filter.filters)
        else:
            required.append(_parse_any([filter]))
    excluded = _parse_any(negated) if negated else None
    select_count = sum(condition.select_count for condition in required) or 1
    return _Conjunction(
        tuple(required), excluded, select_count + (excluded.select_count if excluded else 0)
    )


# The functions below translate conditions to queries.


def _build_any(condition: _Disjunction, parameters: dict[str, Any]) -> sql.Composed:
    parts: list[sql.Composed] = []
    if condition.all_documents:
        parts.append(_ALL)
    if condition.ids:
        parts.append(_BY_ID.format(_ALL, _add_parameter(texts(condition.ids), parameters)))
    if condition.terms:
        terms = _add_parameter(binaries(condition.terms), parameters)
        parts.append(_BY_TERM.format(_COLLECTION_CONDITION, terms))
    if condition.ranges:
        bounds = (binaries([pair[side] for pair in condition.ranges]) for side in (0, 1))
        placeholders = [_add_parameter(values, parameters) for values in bounds]
        parts.append(_BY_RANGE.format(*placeholders, _COLLECTION_CONDITION))
    parts += [_build_all(part, parameters) for part in condition.conjunctions]
    return _combine(" UNION ", parts or [_NONE])


def _build_all(condition: _Conjunction, parameters: dict[str, Any]) -> sql.Composed:
    required = [_build_any(part, parameters) for part in condition.required]
    statement = _combine(" INTERSECT ", required or [_ALL])
    if condition.excluded is None:
        return statement
    return _combine(" EXCEPT ", [statement, _build_any(condition.excluded, parameters)])


def _combine(operator: str, parts: Sequence[sql.Composed]) -> sql.Composed:
    if len(parts) == 1:
        return parts[0]
    inside = [sql.SQL("({})").format(part) for part in parts]
    return sql.SQL(operator).join(inside)


def _add_parameter(value: bytes, parameters: dict[str, Any]) -> sql.Placeholder:
    """Adds `value` to `parameters` under a new name; returns the placeholder with this name."""
    name = f"filter_{len(parameters)}"
    parameters[name] = value
    return sql.Placeholder(name)
