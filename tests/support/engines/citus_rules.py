"""Says which statements a Citus cluster would refuse, or would run on several nodes.

hrag distributes its tables by tenant, so all rows of a tenant are on one node. A statement is sound
if Citus accepts it and if one node alone can run it. `problems` reads a statement and returns what
is wrong with it; no server is needed. The rules are those of Citus 14, found by trying: the tests
of this module have statements that a cluster refused, with its message.

The rules for one statement:

* Each distributed table is bound to the tenant: `tenant_id` is compared with a parameter, or with
  the `tenant_id` of a table that is bound. The table must be in the same block, or in the block
  around an EXISTS or IN that PostgreSQL makes a join of. Other subqueries name the parameter.
* A statement does not use distributed tables together with other tables. Other tables are those
  that stay on the coordinator, and the catalogs of PostgreSQL.
* INSERT ... SELECT is refused if Citus would send its rows as COPY. PostgreSQL refuses this COPY
  on a table with row-level security, and the transaction commits in two phases.
* A statement writes only once: a WITH query does not write rows for another write.
* No value depends on the node that computes it, as ids in the catalogs do.
* A string that contains SET LOCAL contains no other statement, because Citus sends the whole
  string to the node again for each setting.

A statement for all tenants (`all_tenants`) may ask all nodes, and binds no tenant. Its distributed
tables must be joined by `tenant_id`.
"""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import sqlglot
from sqlglot import exp

from tests.support.manuals import ROOT

# sqlglot warns of each statement that it does not know, for example LOCK TABLE.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

HOMES = "hrag_homes"
"""The schema of the tables of homes. They are distributed like the other tables of tenants."""

_MIGRATIONS = ROOT / "hrag" / "engine" / "postgres" / "store" / "migrations"
_PARAMETER = re.compile(r"%(?:\((\w+)\))?[sb]")
_TENANT = "tenant_id"
_WRITES = exp.Insert | exp.Update | exp.Delete | exp.Merge

# Citus refuses to change rows by functions that return another value at each call.
_VOLATILE = {
    "random",
    "nextval",
    "clock_timestamp",
    "gen_random_uuid",
    "uuidv4",
    "uuidv7",
    "setval",
}
_STABLE = {"now", "current_timestamp", "currenttimestamp", "statement_timestamp", "current_date"}
# The values of these functions differ between nodes, and Citus calls them where the rows are.
_OF_A_NODE = {
    *("to_regtype", "to_regclass", "to_regproc", "to_regrole", "to_regnamespace"),
    *("pg_current_xact_id", "pg_current_snapshot", "pg_snapshot_xmin", "txid_current", "age"),
    *("pg_backend_pid", "inet_server_addr", "pg_relation_size", "pg_total_relation_size"),
    *("current_setting", "lastval", "currval", "pg_advisory_xact_lock", "pg_advisory_lock"),
    *("pg_try_advisory_xact_lock", "pg_try_advisory_lock"),
}
_OIDS = {"regclass", "regtype", "regproc", "regrole", "regnamespace"}


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the tables of the schema hrag are.

    The rows of `distributed` tables are on the nodes of their tenants. Each node has a copy of the
    `copied` tables. The `local` tables are on the coordinator. Tables `with_policies`, of any
    kind, have row-level security.
    """

    distributed: frozenset[str]
    copied: frozenset[str]
    local: frozenset[str]
    with_policies: frozenset[str]


@cache
def placement() -> Placement:
    """Returns the placement that the procedure hrag.distribute_tables makes."""
    scripts = "".join(path.read_text("utf-8") for path in sorted(_MIGRATIONS.glob("*.sql")))
    (names,) = re.findall(r"FOREACH name IN ARRAY ARRAY\[(.*?)\] LOOP", scripts, re.DOTALL)[-1:]
    distributed = frozenset(re.findall(r"'(\w+)'", names))
    copied = frozenset(re.findall(r"create_reference_table\('hrag\.(\w+)'", scripts))
    tables = frozenset(re.findall(r"CREATE TABLE hrag\.(\w+)", scripts))
    secured = re.findall(r"ALTER TABLE hrag\.(\w+) ENABLE ROW LEVEL SECURITY", scripts)
    return Placement(
        distributed, copied, tables - distributed - copied, frozenset(secured) & tables
    )


def problems(text: str, *, all_tenants: bool = False) -> list[str]:
    """Returns what is wrong with an SQL string on a cluster; an empty list if nothing is.

    Parameters are written as for psycopg. Raises sqlglot.errors.ParseError if the string is no SQL.
    """
    return list(_problems(text, all_tenants))


@cache
def _problems(text: str, all_tenants: bool) -> tuple[str, ...]:
    if ";" in text.rstrip("; \n") and re.search(r"\bSET LOCAL\b", text):
        return ("SET LOCAL is in one string with other statements",)
    found: list[str] = []
    for statement in sqlglot.parse(_readable(text), read="postgres"):
        if statement is not None:
            for part in _branches(statement) if all_tenants else [statement]:
                found += _Statement(part, all_tenants).problems()
    return tuple(dict.fromkeys(found))


def _branches(statement: exp.Expr) -> list[exp.Expr]:
    """Returns the queries that a UNION combines. Citus can run them one after the other."""
    if isinstance(statement, exp.Union):
        return [*_branches(statement.left), *_branches(statement.right)]
    return [statement]


def _readable(text: str) -> str:
    """Replaces what sqlglot does not read by something equivalent for the rules."""
    text = _PARAMETER.sub(lambda found: f":{found[1] or 'parameter'}", text)
    text = re.sub(r"<#>|<=>|<\+>", "<->", text)
    text = re.sub(r"\bFOR NO KEY UPDATE\b|\bFOR (?:KEY )?SHARE\b", "FOR UPDATE", text)
    return re.sub(r"\(FORMAT BINARY\)", "", text).replace("%%", "%")


def policy_problems(script: str) -> list[str]:
    """Returns the policies on distributed tables that Citus refuses, in a script of SQL.

    They are those with a subquery. Policies inside the bodies of functions are found too.
    """
    policies = re.findall(
        r"\bCREATE\s+POLICY\s+(\w+)\s+ON\s+hrag\.(\w+)([^;]*);", script, re.IGNORECASE
    )
    return [
        f"the policy {name} on hrag.{table} has a subquery"
        for name, table, rest in policies
        if table in placement().distributed and re.search(r"\bSELECT\b(?!\s+TO\b)", _clauses(rest))
    ]


def _clauses(policy: str) -> str:
    """Returns a policy from its first condition on, without the command that it is for."""
    return policy[match.start() :] if (match := re.search(r"\b(USING|WITH)\b", policy)) else ""


@dataclass(eq=False, slots=True)
class _Source:
    """Something with rows in FROM, of which the rules know the column `tenant_id`.

    `name` is the name of a distributed table; it is empty for a subquery, which has the rows of
    its `branches`. `has_tenant` is false if the rows have no such column.
    """

    name: str = ""
    branches: list["_Source"] = field(default_factory=list)
    has_tenant: bool = True
    is_bound: bool = False


class _Scope:
    """The sources of a SELECT, or of another block, by their names; and the block around it.

    `is_join` is true if PostgreSQL joins the block with the block around it. If it is false, Citus
    does not see that rows of both have the same tenant.
    """

    def __init__(
        self, outer: "_Scope | None", queries: dict[str, _Source], *, is_join: bool = False
    ) -> None:
        self.outer = outer
        self.is_join = is_join
        self.queries = queries  # The queries of WITH, by name.
        self.sources: dict[str, _Source] = {}

    def joins(self, source: _Source) -> bool:
        """Returns True if rows of the block are joined with those of a source that it can name."""
        if self.outer is None or source in self.sources.values():
            return True
        return self.is_join and self.outer.joins(source)

    def of(self, column: exp.Column) -> list[_Source]:
        """Returns the sources whose `tenant_id` a column is."""
        if column.name != _TENANT:
            return []
        if column.table:
            scope: _Scope | None = self
            while scope is not None and column.table not in scope.sources:
                scope = scope.outer
            return [scope.sources[column.table]] if scope else []
        having = [source for source in self.sources.values() if source.has_tenant]
        if having or self.outer is None:
            return having
        return self.outer.of(column)


class _Statement:
    """Analyses one statement."""

    def __init__(self, statement: exp.Expr, all_tenants: bool) -> None:
        self._statement = statement
        self._all_tenants = all_tenants
        self._found: list[str] = []
        self._sources: list[_Source] = []
        self._tables: list[_Source] = []
        self._others: list[str] = []
        self._flows: list[tuple[_Source, _Source]] = []  # If the first is bound, so is the second.
        self._joins: list[tuple[_Source, _Source]] = []
        self._parameters: set[str] = set()

    def _rows(self, **values: Any) -> _Source:
        source = _Source(**values)
        self._sources.append(source)
        return source

    def problems(self) -> list[str]:
        if isinstance(self._statement, exp.Create | exp.Alter | exp.Drop | exp.Set | exp.Command):
            return []
        if isinstance(self._statement, exp.Copy):
            return self._copy(self._statement)
        self._visit(self._statement, None, {})
        if not self._tables:
            return []
        self._bind()
        names = ", ".join(sorted({source.name for source in self._tables}))
        if self._others:
            others = ", ".join(sorted(set(self._others)))
            self._found.append(f"distributed tables ({names}) are used together with {others}")
        unbound = sorted({source.name for source in self._tables if not source.is_bound})
        if unbound and not self._all_tenants:
            self._found.append(f"no tenant is bound for {', '.join(unbound)}")
        if unbound and len(self._groups()) > 1:
            self._found.append(f"{names} are not joined by tenant_id")
        if len(self._parameters) > 1:
            self._found.append(f"tenants of several parameters: {sorted(self._parameters)}")
        self._check_writes()
        self._check_functions()
        if unbound:
            self._check_what_only_one_node_can()
        return self._found

    # Copies and inserted rows.

    def _copy(self, copy: exp.Copy) -> list[str]:
        target = copy.this
        columns: list[str] = []
        if isinstance(target, exp.Schema):
            columns = [column.name for column in target.expressions]
            target = target.this
        if isinstance(target, exp.Subquery | exp.Select):
            return _Statement(target.unnest(), self._all_tenants).problems()
        name = self._distributed(target)
        if name is None:
            return []
        if not copy.args.get("kind"):
            return [f"COPY {name} TO asks all nodes"]
        if target.name in placement().with_policies and target.db != HOMES:
            return [f"COPY FROM into {name}, which has row-level security"]
        return [] if not columns or _TENANT in columns else [f"no tenant is bound for {name}"]

    def _insert(
        self, insert: exp.Insert, outer: _Scope | None, queries: dict[str, _Source]
    ) -> None:
        target = insert.this
        columns = [column.name for column in target.expressions] or [_TENANT]
        table = target.this if isinstance(target, exp.Schema) else target
        source = self._table(table)
        rows = insert.expression
        scope = _Scope(outer, queries)
        if source.name:
            scope.sources[table.alias or table.name] = source
            position = columns.index(_TENANT) if _TENANT in columns else None
            values = list(_values_at(rows, position))
            source.is_bound = bool(values) and all(map(self._is_parameter, values))
            if not values or any(isinstance(value, exp.Null) for value in values):
                self._found.append("an INSERT gives no tenant_id")
            if isinstance(rows, exp.Values):
                if any(rows.find_all(exp.Select)):
                    self._found.append("a subquery is in the VALUES of an INSERT")
            else:
                self._check_copied(source, rows, values)
            self._check_conflict(insert.args.get("conflict"))
        if isinstance(rows, exp.Query) and not isinstance(rows, exp.Values):
            self._visit(rows, outer, queries)
        for returning in filter(None, [insert.args.get("returning")]):
            self._subqueries(returning, scope, queries)

    def _check_copied(self, source: _Source, rows: exp.Expr, values: list[exp.Expr]) -> None:
        """Reports an INSERT ... SELECT unless the node of the rows can run it alone.

        It can if the inserted `tenant_id` is the column of a distributed table.
        """
        reads = [table for table in rows.find_all(exp.Table) if self._distributed(table)]
        if reads and values and all(isinstance(value, exp.Column) for value in values):
            source.is_bound = True  # The tables that it reads are checked.
        else:
            self._found.append("INSERT ... SELECT sends its rows as COPY")

    def _check_conflict(self, conflict: exp.Expr | None) -> None:
        if conflict is None:
            return
        if any(conflict.find_all(exp.Select)):
            self._found.append("a subquery is in ON CONFLICT DO UPDATE")
        if _called(conflict) & (_VOLATILE | _STABLE):
            self._found.append("a function that is not immutable is in ON CONFLICT DO UPDATE")

    # The blocks of a statement, their tables, and what binds them.

    def _visit(
        self,
        query: exp.Expr,
        outer: _Scope | None,
        queries: dict[str, _Source],
        *,
        is_join: bool = False,
    ) -> _Source:
        """Analyses a query, or a statement that writes; returns its rows as a source.

        `is_join` says whether PostgreSQL joins it with the block around it.
        """
        queries = dict(queries)
        with_ = query.args.get("with_")
        for query_of_with in with_.expressions if with_ else ():
            name = query_of_with.alias
            # A recursive query reads its own rows.
            queries[name] = self._rows(branches=[])
            queries[name] = self._visit(query_of_with.this, outer, queries)
        if isinstance(query, exp.Subquery):
            return self._visit(query.this, outer, queries, is_join=is_join)
        if isinstance(query, exp.SetOperation):
            branches = [self._visit(part, outer, queries) for part in (query.left, query.right)]
            source = self._rows(branches=branches)
            source.has_tenant = all(branch.has_tenant for branch in branches)
            return source
        if isinstance(query, exp.Insert):
            self._insert(query, outer, queries)
            return self._rows(has_tenant=False)
        if isinstance(query, exp.Merge):
            self._merge(query)
            return self._rows(has_tenant=False)
        if isinstance(query, exp.Values):
            return self._rows(has_tenant=False)
        scope = _Scope(outer, queries, is_join=is_join)
        self._block(query, scope, queries)
        return self._selected(query, scope)

    def _merge(self, merge: exp.Merge) -> None:
        if self._distributed(merge.this):
            self._tables.append(self._rows(name=self._distributed(merge.this) or "", is_bound=True))
            self._found.append("MERGE into a distributed table")

    def _block(self, query: exp.Expr, scope: _Scope, queries: dict[str, _Source]) -> None:
        """Analyses a SELECT, UPDATE or DELETE without its WITH."""
        if isinstance(query, exp.Update | exp.Delete):
            self._add(query.this, scope, queries)
        first = query.args.get("from_")
        if first is not None:
            self._add(first.this, scope, queries)
        for used in query.args.get("using") or ():
            self._add(used, scope, queries)
        tables = [first.this] if first is not None else []
        joins = list(query.args.get("joins") or ())
        for table in [*tables, *(query.args.get("using") or ())]:
            joins = [*(table.args.get("joins") or ()), *joins]
        for join in joins:
            self._join(join, scope, queries)
        for lateral in query.args.get("laterals") or ():
            self._add(lateral, scope, queries)
        where = query.args.get("where")
        if where is not None:
            self._conditions(where.this, scope)
        self._subqueries(query, scope, queries)

    def _add(self, table: exp.Expr, scope: _Scope, queries: dict[str, _Source]) -> _Source:
        """Adds what FROM names to the sources of a block."""
        if isinstance(table, exp.Lateral):
            inner = table.this
            is_query = isinstance(inner, exp.Subquery | exp.Query)
            limits = ("limit", "offset", "group", "distinct")
            is_join = not any(inner.unnest().args.get(name) for name in limits)
            source = (
                self._visit(inner, scope, queries, is_join=is_join)
                if is_query
                else self._rows(has_tenant=False)
            )
        elif isinstance(table, exp.Subquery | exp.Query):
            source = self._visit(table, scope, queries)
        elif isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier):
            is_query = not table.db and table.name in queries
            source = queries[table.name] if is_query else self._table(table)
        else:
            source = self._rows(has_tenant=False)  # The rows of a function.
        scope.sources[table.alias or table.name or f"source {len(scope.sources)}"] = source
        return source

    def _table(self, table: exp.Table) -> _Source:
        name = self._distributed(table)
        if name is None and table.db == "hrag" and table.name in placement().copied:
            return self._rows()
        if name is None:
            self._others.append(table.sql("postgres", comments=False).split(" ")[0])
            return self._rows(has_tenant=True)
        source = self._rows(name=name)
        self._tables.append(source)
        return source

    def _distributed(self, table: exp.Expr) -> str | None:
        """Returns the name of a table with its schema if it is distributed; otherwise None."""
        if not isinstance(table, exp.Table):
            return None
        if table.db == HOMES or (table.db == "hrag" and table.name in placement().distributed):
            return f"{table.db}.{table.name}"
        return None

    def _join(self, join: exp.Join, scope: _Scope, queries: dict[str, _Source]) -> None:
        before = list(scope.sources.values())
        source = self._add(join.this, scope, queries)
        for nested in join.this.args.get("joins") or ():
            self._join(nested, scope, queries)
        is_outer = join.side in ("LEFT", "FULL", "RIGHT")
        if any(column.name == _TENANT for column in join.args.get("using") or ()):
            for other in before:
                if other.has_tenant:
                    self._equal(other, source, both_ways=not is_outer)
        if join.args.get("on") is not None:
            self._conditions(join.args["on"], scope, joined=source if is_outer else None)

    def _conditions(
        self, condition: exp.Expr, scope: _Scope, joined: _Source | None = None
    ) -> None:
        """Reads a condition. Of its parts, only those matter that all rows must fulfil.

        `joined` is the source that an outer join adds. Conditions of the join bind only this one.
        """
        condition = condition.unnest()
        if isinstance(condition, exp.And):
            self._conditions(condition.left, scope, joined)
            self._conditions(condition.right, scope, joined)
        for first, second in _equalities(condition):
            self._equality(first, second, scope, joined)
            self._equality(second, first, scope, joined)

    def _equality(
        self,
        column: exp.Expr,
        value: exp.Expr,
        scope: _Scope,
        joined: _Source | None,
    ) -> None:
        if not isinstance(column, exp.Column):
            return
        sources = scope.of(column)
        if isinstance(value, exp.Column) and value.name == _TENANT:
            for other in scope.of(value):
                for source in sources:
                    if not scope.joins(other):
                        self._joins.append((source, other))
                    elif joined is None or source is joined:
                        self._equal(other, source, both_ways=False)
                    else:
                        self._joins.append((source, other))
        elif column.name == _TENANT and self._is_parameter(value):
            self._parameters.add(value.sql())
            for source in sources:
                if joined is None or source is joined:
                    source.is_bound = True

    def _equal(self, first: _Source, second: _Source, *, both_ways: bool) -> None:
        self._flows.append((first, second))
        if both_ways:
            self._flows.append((second, first))
        self._joins.append((first, second))

    def _subqueries(self, within: exp.Expr, scope: _Scope, queries: dict[str, _Source]) -> None:
        """Analyses the subqueries in the expressions of a block."""
        for node in _expressions(within):
            for query in _outermost_queries(node):
                self._visit(query, scope, queries, is_join=_is_joined(query, node))

    def _selected(self, query: exp.Expr, scope: _Scope) -> _Source:
        """Returns the rows that a block selects. They have a tenant if it selects `tenant_id`."""
        if isinstance(query, exp.Select):
            expressions = list(query.expressions)
        else:
            returning = query.args.get("returning")
            expressions = list(returning.expressions) if returning else []
        for expression in expressions:
            if isinstance(expression, exp.Star) or expression.is_star:
                branches = [source for source in scope.sources.values() if source.has_tenant]
                return self._rows(branches=branches[:1], has_tenant=bool(branches))
            if expression.alias_or_name == _TENANT and isinstance(expression, exp.Column):
                return self._rows(branches=scope.of(expression)[:1])
        return self._rows(has_tenant=False)

    def _is_parameter(self, value: exp.Expr) -> bool:
        value = value.unnest()
        while isinstance(value, exp.Cast):
            value = value.this
        return isinstance(value, exp.Placeholder | exp.Literal | exp.Parameter)

    def _bind(self) -> None:
        """Passes the binding on, until nothing changes.

        A bound source binds what it is equal to. A subquery's rows are bound if all its branches
        are; if a condition binds its rows, the branches are bound too.
        """
        sources = self._sources
        changed = True
        while changed:
            before = sum(source.is_bound for source in sources)
            for first, second in self._flows:
                second.is_bound = second.is_bound or first.is_bound
            for source in sources:
                if source.is_bound:
                    for branch in source.branches:
                        branch.is_bound = True
                elif source.branches:
                    source.is_bound = all(branch.is_bound for branch in source.branches)
            changed = sum(source.is_bound for source in sources) != before

    def _groups(self) -> list[set[_Source]]:
        """Returns the groups of distributed tables that are joined by tenant."""
        groups: list[set[_Source]] = [{source} for source in self._sources]
        pairs = [*self._joins]
        pairs += [(s, branch) for s in self._sources for branch in s.branches]
        for first, second in pairs:
            one = next(group for group in groups if first in group)
            other = next(group for group in groups if second in group)
            if one is not other:
                groups.remove(other)
                one |= other
        return [group for group in groups if group & set(self._tables)]

    # Rules for whole statements.

    def _check_writes(self) -> None:
        writes = [node for node in self._statement.find_all(exp.Expr) if _is_write(node)]
        if len(writes) > 1:
            self._found.append("a WITH query writes, and the statement writes again")
        for update in self._statement.find_all(exp.Update):
            if any(set_.this.name == _TENANT for set_ in update.expressions):
                self._found.append("an UPDATE changes tenant_id")

    def _check_functions(self) -> None:
        calls = _called(self._statement)
        casts = {cast.to.sql("postgres").lower() for cast in self._statement.find_all(exp.Cast)}
        if of_a_node := sorted(calls & _OF_A_NODE | casts & _OIDS):
            self._found.append(f"each node has another value of {', '.join(of_a_node)}")
        for write in self._statement.find_all(exp.Update, exp.Delete):
            parts = [*write.expressions, *filter(None, [write.args.get("where")])]
            if any(_called(part) & _VOLATILE for part in parts):
                self._found.append("a function that is volatile is in an UPDATE or DELETE")
            sums = [node for part in parts for node in part.find_all(exp.Add, exp.Sub)]
            if any(any(node.find_all(exp.Column)) and _called(node) & _STABLE for node in sums):
                self._found.append("an UPDATE or DELETE adds a column to a stable function")

    def _check_what_only_one_node_can(self) -> None:
        """Reports what Citus cannot compute from the rows of several nodes."""
        found = self._found
        statement = self._statement
        if any(select.args.get("locks") for select in statement.find_all(exp.Select)):
            found.append("FOR UPDATE needs one node")
        if any(with_.args.get("recursive") for with_ in statement.find_all(exp.With)):
            found.append("WITH RECURSIVE needs one node")
        if any(statement.find_all(exp.GroupingSets, exp.Cube, exp.Rollup)):
            found.append("GROUPING SETS need one node")
        for lateral in statement.find_all(exp.Lateral):
            inner = (
                lateral.this.unnest() if isinstance(lateral.this, exp.Subquery) else lateral.this
            )
            if inner.args.get("limit") or inner.args.get("offset"):
                found.append("LIMIT or OFFSET in LATERAL needs one node")
        for having in statement.find_all(exp.Having):
            if any(having.find_all(exp.Select)):
                found.append("a subquery in HAVING needs one node")
        for write in statement.find_all(exp.Update, exp.Delete):
            where = write.args.get("where")
            if where and "ctid" in {column.name for column in where.find_all(exp.Column)}:
                found.append("ctid in the condition of a write needs one node")


def _is_write(node: exp.Expr) -> bool:
    return isinstance(node, _WRITES)


def _called(part: exp.Expr) -> set[str]:
    """Returns the names of the functions that a part of a statement calls."""
    return {name for call in part.find_all(exp.Func) for name in _names(call)}


def _names(call: exp.Func) -> set[str]:
    """Returns the names by which sqlglot knows a function, for example `now` as well."""
    if isinstance(call, exp.Anonymous):
        return {str(call.this).lower()}
    return {name.lower() for name in call.sql_names()}


def _equalities(part: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """Yields the pairs of values that a condition requires to be equal."""
    if isinstance(part, exp.EQ):
        first, second = part.left.unnest(), part.right.unnest()
    elif isinstance(part, exp.In) and len(part.expressions) == 1:
        first, second = part.this.unnest(), part.expressions[0].unnest()
    else:
        return
    if isinstance(first, exp.Tuple) and isinstance(second, exp.Tuple):
        yield from zip(first.expressions, second.expressions, strict=False)
    else:
        yield first, second


def _values_at(rows: exp.Expr, position: int | None) -> Iterator[exp.Expr]:
    """Yields the value at a position of each inserted row."""
    if position is None:
        return
    if isinstance(rows, exp.Values):
        for row in rows.expressions:
            yield row.expressions[position] if isinstance(row, exp.Tuple) else row
    elif isinstance(rows, exp.SetOperation):
        yield from _values_at(rows.left, position)
        yield from _values_at(rows.right, position)
    elif isinstance(rows, exp.Select) and position < len(rows.expressions):
        value = rows.expressions[position]
        yield value.this if isinstance(value, exp.Alias) else value


def _expressions(query: exp.Expr) -> Iterator[exp.Expr]:
    """Yields the parts of a block that may contain subqueries, except its tables."""
    for name, value in query.args.items():
        if name in ("with_", "from_", "using", "laterals", "this") and name != "returning":
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, exp.Join):
                if part.args.get("on") is not None:
                    yield part.args["on"]
            elif isinstance(part, exp.Expr):
                yield part


def _is_joined(query: exp.Expr, condition: exp.Expr) -> bool:
    """Returns True if PostgreSQL makes a join of a subquery in a part of a block.

    It does so with EXISTS, NOT EXISTS and IN, if all rows must fulfil this condition.
    """
    if not isinstance(condition, exp.Where):
        return False
    node = query.parent
    while isinstance(node, exp.Subquery | exp.Paren):
        node = node.parent
    if not isinstance(node, exp.Exists | exp.In):
        return False
    is_negative = False
    while node is not condition:
        node = node.parent
        is_negative = is_negative or isinstance(node, exp.Not)
        if not isinstance(node, exp.And | exp.Not | exp.Paren | exp.Where):
            return False
    return not is_negative or isinstance(query.parent, exp.Exists)


def _outermost_queries(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yields the queries in an expression, but not the queries inside of these."""
    if isinstance(node, exp.Query) and not isinstance(node, exp.Table):
        yield node
        return
    for child in node.iter_expressions():
        yield from _outermost_queries(child)
