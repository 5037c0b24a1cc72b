r"""Writes the equations of EQ fields in a linear format, see `linear_formula`.

An EQ field is the way in which Word wrote equations before it had elements for them. Its code is
text with commands: `\f(1,2)` is a fraction, `\r(3,x)` a root, `\o\ad(\s\up 9(reading),text)` a word
with a reading above it, which is left out. Options follow the letter of a command, and its
arguments are in parentheses. A list separator, `,` or `;`, is between the arguments. After `\`, a
sign is a character of the text.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from indexer_svc.parsers.linear_formula import operand

_COMMAND = re.compile(r"\\([abdfilorsx])(?![A-Za-z])", re.IGNORECASE)
# An option of a command: a bracket and its sign, or letters, which a number may follow.
_OPTION = re.compile(
    r"\s*\\(?:([lrb])c\s*\\(.)|([A-Za-z]{2})\s*([0-9]{0,4})(?![A-Za-z]))", re.DOTALL
)
_ARGUMENTS = re.compile(r"\s*\(")
_BRACKETS = {"(": ")", "[": "]", "{": "}", "<": ">"}
_ESCAPED = r"\,;()"
# Commands that are nested more deeply are not read.
_MAX_DEPTH = 50


@dataclass(slots=True)
class _EquationCommand:
    """A command whose arguments have begun. `signs` are the signs of its brackets."""

    letter: str = ""
    options: dict[str, int] = field(default_factory=dict)
    signs: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=lambda: [""])
    separators: list[str] = field(default_factory=list)
    open_parentheses: int = 0

    def add(self, text: str) -> None:
        """Adds text to the last argument."""
        self.arguments[-1] += text

    def separate(self, separator: str) -> None:
        """Begins another argument."""
        self.separators.append(separator)
        self.arguments.append("")

    @property
    def texts(self) -> list[str]:
        """The arguments. A comma is part of an argument if there are semicolons between them."""
        joined = [self.arguments[0]]
        for separator, text in zip(self.separators, self.arguments[1:], strict=True):
            if separator == "," and ";" in self.separators:
                joined[-1] += f",{text}"
            else:
                joined.append(text)
        return [" ".join(text.split()) for text in joined]


def equation_of_field(code: str) -> str:
    """Returns the text of an equation, given what follows `EQ` in the code of its field."""
    frames = [_EquationCommand()]
    position = 0
    while position < len(code):
        frame = frames[-1]
        command = _command(code, position) if len(frames) <= _MAX_DEPTH else None
        if command is not None:
            begun, position = command
            frames.append(begun)
            continue
        sign = code[position]
        position += 1
        if sign == "\\" and code[position : position + 1] in _ESCAPED:
            frame.add(code[position : position + 1])
            position += 1
        elif len(frames) > 1 and sign in ",;" and not frame.open_parentheses:
            frame.separate(sign)
        elif len(frames) > 1 and sign == ")" and not frame.open_parentheses:
            frames.pop()
            frames[-1].add(_written(frame))
        else:
            frame.open_parentheses += {"(": 1, ")": -1}.get(sign, 0)
            frame.add(sign)
    while len(frames) > 1:
        frame = frames.pop()
        frames[-1].add(_written(frame))
    return " ".join(frames[0].arguments[0].split())


def _command(code: str, position: int) -> tuple[_EquationCommand, int] | None:
    """Returns the command that begins at a position, and where its arguments begin."""
    match = _COMMAND.match(code, position)
    if match is None:
        return None
    command = _EquationCommand(match[1].lower())
    end = match.end()
    while (option := _OPTION.match(code, end)) is not None:
        side, sign, name, number = option.groups()
        if side:
            command.signs[side] = sign
        else:
            command.options[name.lower()] = int(number or 0)
        end = option.end()
    start = _ARGUMENTS.match(code, end)
    return None if start is None else (command, start.end())


def _fraction(command: _EquationCommand) -> str:
    upper, *lower = command.texts
    return f"{operand(upper)}/{operand(' '.join(lower))}"


def _root(command: _EquationCommand) -> str:
    *degrees, radicand = command.texts
    degree = " ".join(filter(None, degrees))
    sign = {"": "√", "2": "√", "3": "∛", "4": "∜"}.get(degree, f"√[{degree}]")
    return sign + operand(radicand)


def _scripts(command: _EquationCommand) -> str:
    text = " ".join(filter(None, command.texts))
    if not text:
        return ""
    sign = "^" if "up" in command.options else "_" if "do" in command.options else ""
    return f"{sign}{operand(text)}" if sign else text


def _overlay(command: _EquationCommand) -> str:
    """Returns the texts that are on the line; a reading and a sign around them are left out."""
    texts = [text for text in command.texts if text]
    on_line = [text for text in texts if text[0] not in "^_"] or texts
    return " ".join([text for text in on_line if any(map(str.isalnum, text))] or on_line)


def _enclosed(command: _EquationCommand) -> str:
    signs = command.signs
    both = signs.get("b")
    left = signs.get("l") or both or ("" if "r" in signs else "(")
    right = signs.get("r") or (both and _BRACKETS.get(both, both))
    right = right or ("" if "l" in signs else ")")
    return left + ", ".join(command.texts) + right


def _operator(command: _EquationCommand) -> str:
    lower, upper, content = (*command.texts, "", "", "")[:3]
    sign = "∑" if "su" in command.options else "∏" if "pr" in command.options else "∫"
    scripts = (f"_{operand(lower)}" if lower else "") + (f"^{operand(upper)}" if upper else "")
    return f"{sign}{scripts}{' ' if scripts else ''}{content}"


def _array(command: _EquationCommand) -> str:
    texts, columns = command.texts, max(1, command.options.get("co", 1))
    rows = (texts[at : at + columns] for at in range(0, len(texts), columns))
    return "; ".join(", ".join(row) for row in rows)


def _list(command: _EquationCommand) -> str:
    return ", ".join(command.texts)


_WRITERS: Mapping[str, Callable[[_EquationCommand], str]] = {
    "a": _array,
    "b": _enclosed,
    "d": lambda _command: " ",
    "f": _fraction,
    "i": _operator,
    "l": _list,
    "o": _overlay,
    "r": _root,
    "s": _scripts,
    "x": _list,
}


def _written(command: _EquationCommand) -> str:
    return _WRITERS[command.letter](command)
