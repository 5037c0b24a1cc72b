"""Classes and functions of Python source become sections; comments and strings do not."""

import ast
from pathlib import Path

import pytest

import indexer_svc.parsers.parser_pool
from indexer_svc.parsers.python_source import parse_python

SOURCE = '''\
#!/usr/bin/env python
# Heading?
"""def no(): pass
class No:
"""
import a

@first("#")
@second
class Bees(Base):
    text = "class No: it's" + 'def no'

    async def dance(self): # def no():
        def step(): ...
        return f"""
def no(): {self}"""

    def rest(self, sign='"'):
        pass

if a:
    def honey(text=r"\\"):
        pass
'''


def outline(text: str) -> list[tuple[int, str, int]]:
    """Returns the depth, the title and the start of each section."""
    parsed = parse_python(text.encode(), 0)
    assert (parsed.text, parsed.title, parsed.pages) == (text, "", ())
    return [(heading.depth, heading.title, heading.char_start) for heading in parsed.headings]


def test_classes_and_functions_nest_and_begin_at_their_decorators():
    definitions = [
        (depth, title, SOURCE[start : SOURCE.index("\n", start)])
        for depth, title, start in outline(SOURCE)
    ]
    assert definitions == [
        (1, "class Bees", '@first("#")'),
        (2, "def dance", "    async def dance(self): # def no():"),
        (3, "def step", "        def step(): ..."),
        (2, "def rest", "    def rest(self, sign='\"'):"),
        (1, "def honey", '    def honey(text=r"\\"):'),
    ]


def test_the_depth_of_nested_definitions_has_a_limit():
    nested = "".join(f"{' ' * depth}def f():\n" for depth in range(100))
    assert [depth for depth, _, _ in outline(nested)] == [*range(1, 17), *[16] * 84]


@pytest.mark.parametrize(
    "text", ["", "x", "'", '"""', "'''def a(): pass", "def", "def ", "\\", "@a\n"]
)
def test_incomplete_source_has_no_sections(text):
    assert outline(text) == []


def test_real_source_has_the_sections_of_its_syntax_tree():
    text = Path(indexer_svc.parsers.parser_pool.__file__).read_text("utf-8")
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    names = sorted(node.name for node in ast.walk(ast.parse(text)) if isinstance(node, kinds))
    assert sorted(title.split()[1] for _, title, _ in outline(text)) == names
