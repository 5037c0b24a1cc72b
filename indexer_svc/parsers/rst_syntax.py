"""Parses reStructuredText into docutils' document tree, without access to files.

docutils knows the syntax, and the directives and roles that it defines. Documents also use those of
Sphinx and of other programs, whose content docutils would leave out. So while a text is parsed,
names that docutils does not know get a directive that keeps its arguments and content, and a role
that keeps its text.

Nothing outside of the text is read: directives that would insert a file, an address or raw markup
are off, and so are the date and highlighting. All modules of docutils that a text can need are
loaded here, because a confined process cannot load modules.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

from docutils import nodes, utils
from docutils.frontend import get_default_settings
from docutils.parsers.rst import Directive, Parser, directives, roles
from docutils.parsers.rst.directives import (  # noqa: F401  (docutils loads them by their names)
    admonitions,
    body,
    images,
    misc,
    parts,
    references,
    tables,
)
from docutils.readers.standalone import Reader
from docutils.transforms import references as reference_transforms

# Directives without text of the document: navigation, settings, insertions.
_WITHOUT_TEXT = frozenset((
    *("toctree", "index", "contents", "highlight", "highlightlang", "include", "literalinclude"),
    *("raw", "meta", "date", "header", "footer", "rst-class", "tabularcolumns", "module"),
    *("currentmodule", "py:module", "py:currentmodule", "default-domain", "sectionauthor"),
    *("codeauthor", "moduleauthor", "target-notes", "restructuredtext-test-directive", "sectnum"),
    *("section-numbering", "title", "cmake-module", "testsetup", "testcleanup", "ifconfig-end"),
))  # fmt: skip
_CODE = frozenset((
    *("code-block", "sourcecode", "code", "literal", "prompt", "ipython", "ipython3"),
    *("testcode", "testoutput", "doctest", "productionlist", "graphviz", "digraph", "graph"),
    *("mermaid", "uml", "plantuml", "plot", "console", "terminal", "jupyter-execute"),
))  # fmt: skip
# Directives that describe an object: their argument is the object's signature.
_OBJECTS = frozenset((
    *("function", "class", "method", "attribute", "data", "exception", "decorator", "property"),
    *("staticmethod", "classmethod", "option", "cmdoption", "program", "envvar", "describe"),
    *("object", "confval", "setting", "command", "variable", "macro", "type", "struct", "member"),
    *("enum", "enumerator", "var", "const", "opcode", "signal", "directive", "role", "field"),
))  # fmt: skip
# In docutils, `class` names a style of the content. In Sphinx it describes a class of Python.
_CLASS = "class"
# The argument of these directives is a condition or a style, and no text.
_WITHOUT_TEXT_OF_ARGUMENT = frozenset(("only", "ifconfig", "cssclass", "tab-set", "grid"))
_SIGNATURE = re.compile(r"[A-Z]|.*[.(]")
_VERSIONS = {
    "versionadded": "Added in version",
    "versionchanged": "Changed in version",
    "versionremoved": "Removed in version",
    "deprecated": "Deprecated since version",
    "deprecated-removed": "Deprecated since version",
}
_LABELS = {"seealso": "See also", "todo": "To do", "centered": ""}
# These would read the world around the text. The others only make the result simpler.
_SETTINGS = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "_disable_config": True,
    "syntax_highlight": "none",
    "smart_quotes": False,
    "report_level": 5,
    "halt_level": 6,
    "line_length_limit": 1 << 30,
    "doctitle_xform": False,
    "docinfo_xform": False,
    "sectsubtitle_xform": False,
    "sectnum_xform": False,
    "warning_stream": "",
}
# The texts that are inserted for references may have so many characters. docutils needs about as
# much time for each reference as for _REFERENCE_CHARS characters.
_MAX_INSERTED_CHARS = 8 << 20
_REFERENCE_CHARS = 500
_NOT_APPLIED = (reference_transforms.DanglingReferences,)


def document_of(text: str) -> nodes.document:
    """Returns the document tree of a text.

    docutils may raise any error for a hostile text, for example RecursionError. Raises ValueError
    if the substitutions in the text would make it too long.
    """
    document = utils.new_document("", copy(_DEFAULTS))
    reader = Reader()
    with _keep_unknown():
        Parser().parse(text, document)
        _check_substitutions(document)
        document.transformer.components = {"reader": reader, "parser": None, "writer": None}
        document.transformer.add_transforms(
            [transform for transform in reader.get_transforms() if transform not in _NOT_APPLIED]
        )
        document.transformer.apply_transforms()
    return document


def _check_substitutions(document: nodes.document) -> None:
    """Raises ValueError if all substitutions would insert more than _MAX_INSERTED_CHARS.

    A text that is substituted may itself have references, so a few lines could become gigabytes.
    docutils finds only those that contain themselves. They count once here.
    """
    names = document.substitution_names
    inner = {
        name: [
            names.get(reference["refname"].lower(), "")
            for reference in definition.findall(nodes.substitution_reference)
        ]
        for name, definition in document.substitution_defs.items()
    }
    sizes = {
        name: len(definition.rawsource) + _REFERENCE_CHARS
        for name, definition in document.substitution_defs.items()
    }
    inserted: dict[str, int] = {}
    for first, first_inner in inner.items():
        if first in inserted:
            continue
        inserted[first] = sizes[first]
        # The texts that are being measured, each with its inner texts that are still to be added.
        measured = [(first, iter(first_inner))]
        while measured:
            name, rest = measured[-1]
            inner_name = next(rest, None)
            if inner_name is None:
                measured.pop()
                if measured:
                    inserted[measured[-1][0]] += inserted[name]
            elif inner_name in inserted:
                inserted[name] += inserted[inner_name]
            elif inner_name in inner:
                inserted[inner_name] = sizes[inner_name]
                measured.append((inner_name, iter(inner[inner_name])))
    found = document.findall(nodes.substitution_reference)
    total = sum(inserted.get(names.get(node["refname"].lower(), ""), 0) for node in found)
    if total > _MAX_INSERTED_CHARS:
        raise ValueError("the substitutions make the text too long")


class _AnyOptions(dict[str, Any]):
    """The options of a directive of which nothing is known: each option is allowed."""

    def __bool__(self) -> bool:
        return True

    def __contains__(self, _name: object) -> bool:
        return True

    def __getitem__(self, _name: str) -> Any:
        return lambda value: value


class _KeptDirective(Directive):  # type: ignore[misc]  # docutils has no types.
    """A directive that docutils does not know. Its arguments and its content are kept."""

    required_arguments = 0
    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = _AnyOptions()

    def run(self) -> list[nodes.Node]:
        """Returns the nodes of the directive's text."""
        name = self.name.lower()
        argument = self.arguments[0] if self.arguments else ""
        kind = name.rpartition(":")[2]
        if name in _VERSIONS:
            return self._version(_VERSIONS[name], argument)
        is_style = name == _CLASS and not _SIGNATURE.match(argument)
        if is_style or name in _WITHOUT_TEXT_OF_ARGUMENT:
            return self._nested()
        if kind in _OBJECTS:
            return [self._object(argument)]
        label = _LABELS.get(name)
        first = self._inline(argument, f"{label}: " if label else "")
        return [*first, *self._nested()]

    def _version(self, label: str, argument: str) -> list[nodes.Node]:
        version, _, explanation = argument.partition("\n")
        number, _, first_words = version.partition(" ")
        text = " ".join(filter(None, (first_words, explanation)))
        return [*self._inline(text, f"{label} {number}: "), *self._nested()]

    def _object(self, signatures: str) -> nodes.Node:
        terms = [nodes.term("", line.strip()) for line in signatures.splitlines() if line.strip()]
        definition = nodes.definition("", *self._nested())
        return nodes.definition_list("", nodes.definition_list_item("", *terms, definition))

    def _inline(self, text: str, label: str) -> list[nodes.Node]:
        """Returns a paragraph of a label and a text with inline markup; nothing without text."""
        if not text and not label.strip():
            return []
        children, messages = self.state.inline_text(text, self.lineno)
        return [nodes.paragraph("", label, *children), *messages]

    def _nested(self) -> list[nodes.Node]:
        container = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, container, match_titles=True)
        return list(container.children)


class _CodeDirective(_KeptDirective):
    """A directive whose content is preformatted."""

    def run(self) -> list[nodes.Node]:
        """Returns the content as a literal block."""
        lines = [*self.content]
        return [nodes.literal_block("", "\n".join(lines))] if lines else []


class _EmptyDirective(_KeptDirective):
    """A directive without text."""

    def run(self) -> list[nodes.Node]:
        """Returns nothing."""
        return []


def _kept_role(
    _role: str, rawtext: str, text: str, *_details: object, **_options: object
) -> tuple[list[nodes.Node], list[nodes.Node]]:
    """Returns the text of a role that docutils does not know, without its target."""
    shown = utils.unescape(text)
    title, separator, target = shown.rpartition("<")
    if separator and target.endswith(">") and title.strip():
        shown = title.strip()
    return [nodes.inline(rawtext, shown.lstrip("~!"))], []


def _directive(
    name: str, language: Any, document: nodes.document
) -> tuple[type[Directive], Sequence[nodes.Node]]:
    """Returns the class of a directive. It is never None, so docutils knows every directive."""
    lower = name.lower()
    if lower in _WITHOUT_TEXT:
        return _EmptyDirective, []
    if lower in _CODE:
        return _CodeDirective, []
    if lower in _KNOWN and lower != _CLASS:
        directive, messages = _FIND_DIRECTIVE(name, language, document)
        if directive is not None:
            return directive, messages
    return _KeptDirective, []


def _role(name: str, language: Any, lineno: int, reporter: Any) -> tuple[Any, Sequence[nodes.Node]]:
    """Returns the function of a role. It is never None, so docutils knows every role."""
    role, messages = _FIND_ROLE(name, language, lineno, reporter)
    return (_kept_role, []) if role is None else (role, messages)


@contextmanager
def _keep_unknown() -> Iterator[None]:
    """Replaces docutils' look-up of directives and roles while a text is parsed, as Sphinx does.

    A parser process parses one text at a time. Roles that the text defines are removed afterwards.
    """
    known_roles = dict(roles._roles)
    directives.directive, roles.role = _directive, _role
    try:
        yield
    finally:
        directives.directive, roles.role = _FIND_DIRECTIVE, _FIND_ROLE
        roles._roles.clear()
        roles._roles.update(known_roles)


_FIND_DIRECTIVE, _FIND_ROLE = directives.directive, roles.role
_KNOWN = frozenset(directives._directive_registry)
_DEFAULTS = get_default_settings(Parser, Reader)
for _name, _value in _SETTINGS.items():
    setattr(_DEFAULTS, _name, _value)
# The first parse loads what docutils loads by name, for example the words of its languages.
document_of("=\na\n=\n\n.. note:: :sup:`a` [#]_\n\n.. [#] b\n\n.. list-table::\n\n   * - c\n")
