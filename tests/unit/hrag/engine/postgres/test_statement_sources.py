"""No SQL statement contains values. The tests prove this by analysing the source of the engine.

Each executed statement is a constant of its module, or it is composed by psycopg.sql from such
constants. A constant is computed when its module is imported. Values are passed as parameters, and
names of tables as identifiers.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

import hrag.engine.postgres

FOLDER = Path(hrag.engine.postgres.__file__).parent
# The position of the argument that is a statement, by the name of the called function.
STATEMENTS = {"execute": 0, "executemany": 0, "copy": 0, "stream": 0, "SQL": 0}
# The functions of psycopg.sql that compose statements.
COMPOSED = {"format", "join", "SQL", "Identifier", "Literal", "Placeholder", "Composed"}
# The statements in these properties contain only constants, which is tested below.
TRUSTED = {"condition"}
# Parameters, by module, that receive a file of the package: the script of a migration.
FILES = {("store.connection", "script")}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """The name and the syntax tree of a module."""

    name: str
    tree: ast.Module

    @classmethod
    def parsed(cls, name: str, source: str) -> "Module":
        tree = ast.parse(source)
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                child.parent = node  # type: ignore[attr-defined]
        return cls(name, tree)

    @cached_property
    def constants(self) -> dict[str, ast.expr | None]:
        """The expressions of the names that the module binds; None for imported names."""
        values: dict[str, ast.expr | None] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                values |= {t.id: node.value for t in node.targets if isinstance(t, ast.Name)}
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                values[node.target.id] = node.value
            elif isinstance(node, ast.ImportFrom):
                values |= dict.fromkeys((alias.asname or alias.name for alias in node.names), None)
        return values

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Yields every call with the name of the called function."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield _called(node), node


def _called(call: ast.Call) -> str:
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def _function_around(node: ast.AST) -> Function | None:
    while not isinstance(node, Function | ast.Module):
        node = node.parent  # type: ignore[attr-defined]
    return node if isinstance(node, Function) else None


class Sources:
    """Analyses the modules of the engine and finds statements that may contain values."""

    def __init__(self, modules: list[Module]) -> None:
        self._modules = modules

    def violations(self) -> list[str]:
        """Returns the statements that may contain values, each with its module and line."""
        violations = []
        for module in self._modules:
            for name, call in module.calls():
                position = STATEMENTS.get(name)
                # A statement outside of functions is computed when its module is imported.
                if position is None or len(call.args) <= position or _function_around(call) is None:
                    continue
                if not self._is_fixed(call.args[position], module, call):
                    violations.append(f"{module.name}:{call.lineno}: {ast.unparse(call)}")
        return violations

    def _is_fixed(self, value: ast.expr, module: Module, at: ast.AST) -> bool:
        """Returns True if an expression is a constant, or is composed by psycopg.sql.

        `at` is a node in the function that contains the expression.
        """
        match value:
            case ast.JoinedStr(values=parts):
                values = [part.value for part in parts if isinstance(part, ast.FormattedValue)]
                is_fixed = all(_is_constant(part, module, at) for part in values)
            case (
                ast.BinOp(op=ast.Add(), left=first, right=second)
                | ast.IfExp(body=first, orelse=second)
            ):
                is_fixed = all(self._is_fixed(part, module, at) for part in (first, second))
            case ast.Name():
                is_fixed = self._is_fixed_name(value, module, at)
            case ast.Subscript(value=whole):
                is_fixed = self._is_fixed(whole, module, at)
            case ast.Attribute(attr=name):
                trusted = name in TRUSTED or self._is_annotated(name)
                is_fixed = trusted or self._is_fixed_field(name, module)
            case ast.Tuple(elts=parts):
                is_fixed = all(self._is_fixed(part, module, at) for part in parts)
            case ast.Call():
                is_fixed = self._is_fixed_call(value, module, at)
            case _:  # A wrapper passes `*arguments` to the function that it wraps.
                is_fixed = isinstance(value, ast.Constant | ast.Starred)
        return is_fixed

    def _is_fixed_call(self, call: ast.Call, module: Module, at: ast.AST) -> bool:
        name = _called(call)
        if name == "as_string":
            assert isinstance(call.func, ast.Attribute)
            return self._is_fixed(call.func.value, module, at)
        if name not in COMPOSED:
            return self._is_annotated(name)
        if name in ("format", "join"):
            assert isinstance(call.func, ast.Attribute)
            return self._is_composed(call.func.value, module, at)
        return True  # The text of sql.SQL is checked as a separate statement.

    def _is_composed(self, value: ast.expr, module: Module, at: ast.AST) -> bool:
        """Returns True if the object with the method `format` or `join` is one of psycopg.sql."""
        if isinstance(value, ast.Name):
            values = _local_expressions(value.id, at) or [module.constants.get(value.id)]
            return all(
                bound is not None and self._is_composed(bound, module, at) for bound in values
            )
        return isinstance(value, ast.Call) and _called(value) in COMPOSED

    def _is_fixed_name(self, value: ast.Name, module: Module, at: ast.AST) -> bool:
        values = _local_expressions(value.id, at)
        if values:
            return all(self._is_fixed(bound, module, at) for bound in values)
        function = _function_around(at)
        assert function is not None
        names = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        argument = next((name for name in names if name.arg == value.id), None)
        if argument is None:
            return value.id in module.constants
        if (module.name, value.id) in FILES or _is_sql(argument.annotation):
            return True
        return self._is_fixed_argument(function, names.index(argument), value.id)

    def _is_fixed_argument(self, function: Function, number: int, name: str) -> bool:
        """Returns True if every caller of a function passes a fixed statement as this argument."""
        is_method = function.args.args[:1] and function.args.args[0].arg in ("self", "cls")
        callers = [
            (module, call)
            for module in self._modules
            for called, call in module.calls()
            if called == function.name and _function_around(call) is not function
        ]
        if function.name in STATEMENTS or not callers:
            # The callers of a wrapper such as `execute` are checked instead.
            return function.name in STATEMENTS
        for module, call in callers:
            position = number - bool(is_method)
            by_name = {keyword.arg: keyword.value for keyword in call.keywords}
            value = by_name.get(name) or call.args[position]
            if not self._is_fixed(value, module, call):
                return False
        return True

    def _is_fixed_field(self, name: str, module: Module) -> bool:
        """Returns True if a class of the module has the field and always gets a constant for it."""
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                fields = [e.target.id for e in node.body if isinstance(e, ast.AnnAssign)]  # type: ignore[union-attr]
                if name in fields:
                    calls = [call for called, call in module.calls() if called == node.name]
                    values = [(call, _argument_for_field(call, fields, name)) for call in calls]
                    return bool(calls) and all(
                        self._is_fixed(value, module, call) for call, value in values
                    )
        return False

    def _is_annotated(self, name: str) -> bool:
        """Returns True if functions or fields have this name, all annotated as psycopg.sql."""
        are_sql = []
        for module in self._modules:
            for node in ast.walk(module.tree):
                if isinstance(node, Function) and node.name == name:
                    are_sql.append(_is_sql(node.returns))
                elif isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == name:
                    are_sql.append(_is_sql(node.annotation))
        return bool(are_sql) and all(are_sql)


def _argument_for_field(call: ast.Call, fields: list[str], name: str) -> ast.expr:
    """Returns the argument that a call of a class passes for the field `name`."""
    by_name = {keyword.arg: keyword.value for keyword in call.keywords}
    return by_name.get(name) or call.args[fields.index(name)]


def _is_sql(annotation: ast.expr | None) -> bool:
    return annotation is not None and "sql." in ast.unparse(annotation)


def _is_constant(value: ast.expr, module: Module, at: ast.AST) -> bool:
    """Returns True if an expression is the name of a constant of the module."""
    return (
        isinstance(value, ast.Name)
        and value.id in module.constants
        and not _local_expressions(value.id, at)
    )


def _local_expressions(name: str, at: ast.AST) -> list[ast.expr]:
    """Returns the expressions that the enclosing function binds to a name.

    For a loop variable, this is the expression that the loop iterates over.
    """
    function, values = _function_around(at), []
    for node in ast.walk(function) if function else ():
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                values.append(value)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=elements)):
                pairs = zip(names, elements, strict=False)
                values += [v for n, v in pairs if isinstance(n, ast.Name) and n.id == name]
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                if any(isinstance(e, ast.Name) and e.id == name for e in ast.walk(target)):
                    values.append(_iterated(value))
    return values


def _iterated(value: ast.expr) -> ast.expr:
    """Returns the expression whose members a loop iterates over: `NAMES` for `NAMES.items()`."""
    match value:
        case ast.Call(func=ast.Attribute(value=names, attr="items" | "values")):
            return names
        case ast.Call(func=ast.Name(id="zip"), args=parts):
            return ast.Tuple(parts, ast.Load())
    return value


def _module_name(path: Path) -> str:
    return ".".join(path.relative_to(FOLDER).with_suffix("").parts)


def _violations(source: str) -> list[str]:
    return Sources([Module.parsed("module", source)]).violations()


def test_no_statement_contains_values() -> None:
    modules = [
        Module.parsed(_module_name(path), path.read_text()) for path in sorted(FOLDER.rglob("*.py"))
    ]
    assert len(modules) > 30
    assert Sources(modules).violations() == []


def test_trusted_properties_contain_only_constants() -> None:
    source = (FOLDER / "search" / "eligible_leaves.py").read_text()
    properties = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name in TRUSTED
    ]
    assert {function.name for function in properties} == TRUSTED
    for node in (inner for function in properties for inner in ast.walk(function)):
        assert not isinstance(node, ast.JoinedStr | ast.BinOp)
        if isinstance(node, ast.Call):
            assert _called(node) in ("append", "join")
            assert all(isinstance(value, ast.Constant | ast.Name) for value in node.args)


@pytest.mark.parametrize(
    "body",
    [
        'connection.execute(f"SELECT {name}")',
        'connection.execute("SELECT " + name)',
        'connection.execute("SELECT %s" % name)',
        "connection.execute(TEXT.format(name))",
        "statement = TEXT.format(name); connection.execute(statement)",
        "connection.execute(sql.SQL(name))",
        'connection.execute(sql.SQL(f"SELECT {name}").format(x=1))',
        'connection.execute(" ".join([name]))',
        "connection.execute(name)",
        "connection.execute(other(name))",
        "connection.execute(sql.SQL(name.as_string()))",
    ],
)
def test_a_statement_that_may_contain_values_is_reported(body: str) -> None:
    assert _violations(f"TEXT = 'SELECT {{}}'\ndef f(connection, name):\n    {body}\n")


@pytest.mark.parametrize(
    "body",
    [
        'connection.execute("SELECT %s", (name,))',
        "connection.execute(TEXT, (name,))",
        "connection.execute(FORMATTED)",
        "connection.execute(SQL.format(sql.Identifier(name)))",
        "statement = SQL.format(sql.Identifier(name)); connection.execute(statement)",
        "for statement in ALL: connection.execute(statement)",
        'connection.execute(sql.SQL(" UNION ALL ").join([SQL]))',
        "text = SQL.format(sql.Identifier(name)); connection.execute(sql.SQL(text.as_string()))",
    ],
)
def test_a_fixed_statement_is_not_reported(body: str) -> None:
    constants = (
        "TEXT = 'SELECT %s'\nFORMATTED = TEXT.format(1)\n"
        "SQL = sql.SQL('{}')\nALL = (TEXT, FORMATTED)\n"
    )
    assert _violations(f"{constants}def f(connection, name):\n    {body}\n") == []
