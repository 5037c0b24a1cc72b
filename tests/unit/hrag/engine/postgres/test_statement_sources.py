"""No statement is made of values: proved by reading the source of the engine.

What is executed is a constant of its module, made when that is imported, or composed by
psycopg.sql, whose texts are such constants in turn. Values are parameters, names of tables
identifiers.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

import hrag.engine.postgres

FOLDER = Path(hrag.engine.postgres.__file__).parent
# By the name of what is called: which argument is a statement.
STATEMENTS = {"execute": 0, "executemany": 0, "copy": 0, "stream": 0, "SQL": 0}
COMPOSED = {"format", "join", "SQL", "Identifier", "Literal", "Placeholder", "Composed"}
# Properties that are made of constants alone, see test_what_is_trusted_is_made_of_constants.
TRUSTED = {"condition"}
# Steps of migrations: files of the package.
FILES = {("store.connection", "script")}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One module's source, and what its names are bound to."""

    name: str
    tree: ast.Module

    @classmethod
    def of(cls, name: str, source: str) -> "Module":
        tree = ast.parse(source)
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                child.parent = node  # type: ignore[attr-defined]
        return cls(name, tree)

    @cached_property
    def constants(self) -> dict[str, ast.expr | None]:
        """What is bound when the module is imported; None for what it imports itself."""
        found: dict[str, ast.expr | None] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                found |= {t.id: node.value for t in node.targets if isinstance(t, ast.Name)}
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[node.target.id] = node.value
            elif isinstance(node, ast.ImportFrom):
                found |= dict.fromkeys((each.asname or each.name for each in node.names), None)
        return found

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
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
    """All modules; tells what statements are made of."""

    def __init__(self, modules: list[Module]) -> None:
        self._modules = modules

    def violations(self) -> list[str]:
        """Each statement that may be made of values, with its place."""
        found = []
        for module in self._modules:
            for name, call in module.calls():
                at = STATEMENTS.get(name)
                # Statements in a function that is called when its module is imported are constants.
                if at is None or len(call.args) <= at or _function_around(call) is None:
                    continue
                if not self._is_fixed(call.args[at], module, call):
                    found.append(f"{module.name}:{call.lineno}: {ast.unparse(call)}")
        return found

    def _is_fixed(self, value: ast.expr, module: Module, at: ast.AST) -> bool:
        """Whether an expression is a constant or composed by psycopg.sql."""
        match value:
            case ast.JoinedStr(values=parts):
                given = [each.value for each in parts if isinstance(each, ast.FormattedValue)]
                is_fixed = all(_is_constant(each, module, at) for each in given)
            case ast.BinOp(op=ast.Add(), left=one, right=other) | ast.IfExp(body=one, orelse=other):
                is_fixed = all(self._is_fixed(each, module, at) for each in (one, other))
            case ast.Name():
                is_fixed = self._is_fixed_name(value, module, at)
            case ast.Subscript(value=whole):
                is_fixed = self._is_fixed(whole, module, at)
            case ast.Attribute(attr=name):
                trusted = name in TRUSTED or self._is_annotated(name)
                is_fixed = trusted or self._is_fixed_field(name, module)
            case ast.Tuple(elts=parts):
                is_fixed = all(self._is_fixed(each, module, at) for each in parts)
            case ast.Call():
                is_fixed = self._is_fixed_call(value, module, at)
            case _:  # A wrapper passes all of its arguments on.
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
        return True  # The text of an SQL is a statement of its own here.

    def _is_composed(self, value: ast.expr, module: Module, at: ast.AST) -> bool:
        """Whether what is formatted is an object of psycopg.sql, not a text."""
        if isinstance(value, ast.Name):
            bound = _locals(value.id, at) or [module.constants.get(value.id)]
            return all(each is not None and self._is_composed(each, module, at) for each in bound)
        return isinstance(value, ast.Call) and _called(value) in COMPOSED

    def _is_fixed_name(self, value: ast.Name, module: Module, at: ast.AST) -> bool:
        bound = _locals(value.id, at)
        if bound:
            return all(self._is_fixed(each, module, at) for each in bound)
        function = _function_around(at)
        assert function is not None
        names = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        argument = next((each for each in names if each.arg == value.id), None)
        if argument is None:
            return value.id in module.constants
        if (module.name, value.id) in FILES or _is_sql(argument.annotation):
            return True
        return self._is_fixed_argument(function, names.index(argument), value.id)

    def _is_fixed_argument(self, function: Function, number: int, name: str) -> bool:
        """Whether every caller of a function passes a fixed statement."""
        is_method = function.args.args[:1] and function.args.args[0].arg in ("self", "cls")
        callers = [
            (module, call)
            for module in self._modules
            for called, call in module.calls()
            if called == function.name and _function_around(call) is not function
        ]
        if function.name in STATEMENTS or not callers:
            return function.name in STATEMENTS  # A wrapper, whose callers are looked at.
        for module, call in callers:
            position = number - bool(is_method)
            given = {each.arg: each.value for each in call.keywords}
            value = given.get(name) or call.args[position]
            if not self._is_fixed(value, module, call):
                return False
        return True

    def _is_fixed_field(self, name: str, module: Module) -> bool:
        """Whether a field of a class of the module is a constant wherever one is made."""
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                fields = [e.target.id for e in node.body if isinstance(e, ast.AnnAssign)]  # type: ignore[union-attr]
                if name in fields:
                    made = [call for called, call in module.calls() if called == node.name]
                    given = [(each, _field_of(each, fields, name)) for each in made]
                    return bool(made) and all(self._is_fixed(v, module, c) for c, v in given)
        return False

    def _is_annotated(self, name: str) -> bool:
        """Whether a function or field of the engine is one of psycopg.sql, says its type."""
        found = []
        for module in self._modules:
            for node in ast.walk(module.tree):
                if isinstance(node, Function) and node.name == name:
                    found.append(_is_sql(node.returns))
                elif isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == name:
                    found.append(_is_sql(node.annotation))
        return bool(found) and all(found)


def _field_of(call: ast.Call, fields: list[str], name: str) -> ast.expr:
    """What a call of a class passes for one of its fields."""
    by_name = {each.arg: each.value for each in call.keywords}
    return by_name.get(name) or call.args[fields.index(name)]


def _is_sql(annotation: ast.expr | None) -> bool:
    return annotation is not None and "sql." in ast.unparse(annotation)


def _is_constant(value: ast.expr, module: Module, at: ast.AST) -> bool:
    """Whether a part of a text is a constant of the module."""
    return (
        isinstance(value, ast.Name) and value.id in module.constants and not _locals(value.id, at)
    )


def _locals(name: str, at: ast.AST) -> list[ast.expr]:
    """What is bound to a name in the function around; loops bind to what they iterate over."""
    function, found = _function_around(at), []
    for node in ast.walk(function) if function else ():
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                found.append(value)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = zip(names, values, strict=False)
                found += [v for n, v in pairs if isinstance(n, ast.Name) and n.id == name]
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                if any(isinstance(e, ast.Name) and e.id == name for e in ast.walk(target)):
                    found.append(_iterated(value))
    return found


def _iterated(value: ast.expr) -> ast.expr:
    """What a loop runs over: of `NAMES.items()` the names."""
    match value:
        case ast.Call(func=ast.Attribute(value=names, attr="items" | "values")):
            return names
        case ast.Call(func=ast.Name(id="zip"), args=parts):
            return ast.Tuple(parts, ast.Load())
    return value


def _name_of(path: Path) -> str:
    return ".".join(path.relative_to(FOLDER).with_suffix("").parts)


def _violations(source: str) -> list[str]:
    return Sources([Module.of("made", source)]).violations()


def test_no_statement_is_made_of_values() -> None:
    modules = [Module.of(_name_of(path), path.read_text()) for path in sorted(FOLDER.rglob("*.py"))]
    assert len(modules) > 30
    assert Sources(modules).violations() == []


def test_what_is_trusted_is_made_of_constants() -> None:
    source = (FOLDER / "search" / "eligible_leaves.py").read_text()
    properties = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name in TRUSTED
    ]
    assert {each.name for each in properties} == TRUSTED
    for node in (inner for each in properties for inner in ast.walk(each)):
        assert not isinstance(node, ast.JoinedStr | ast.BinOp)
        if isinstance(node, ast.Call):
            assert _called(node) in ("append", "join")
            assert all(isinstance(each, ast.Constant | ast.Name) for each in node.args)


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
def test_a_statement_made_of_values_is_noticed(body: str) -> None:
    assert _violations(f"TEXT = 'SELECT {{}}'\ndef f(connection, name):\n    {body}\n")


@pytest.mark.parametrize(
    "body",
    [
        'connection.execute("SELECT %s", (name,))',
        "connection.execute(TEXT, (name,))",
        "connection.execute(MADE)",
        "connection.execute(SQL.format(sql.Identifier(name)))",
        "statement = SQL.format(sql.Identifier(name)); connection.execute(statement)",
        "for each in EACH: connection.execute(each)",
        'connection.execute(sql.SQL(" UNION ALL ").join([SQL]))',
        "made = SQL.format(sql.Identifier(name)); connection.execute(sql.SQL(made.as_string()))",
    ],
)
def test_a_fixed_statement_is_not(body: str) -> None:
    constants = (
        "TEXT = 'SELECT %s'\nMADE = TEXT.format(1)\nSQL = sql.SQL('{}')\nEACH = (TEXT, MADE)\n"
    )
    assert _violations(f"{constants}def f(connection, name):\n    {body}\n") == []
