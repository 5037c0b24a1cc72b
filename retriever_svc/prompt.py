"""The prompt: a template filled with the question and the numbered passages.

`answer_prompt.txt` is the built-in one; HRAG_ANSWER_PROMPT_FILE names another. No passage can
pose as another one: its heading is one line, each line of its text is quoted, and what looks
like a passage's number has other brackets. Text that looks like a placeholder is not replaced.
Headings and quotes take at most _OVERHEAD of the passages' token budget.
"""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from string import Template

from hrag.config import SettingsError
from hrag.text import citations, tokens
from hrag.text.plain_text import quoted_lines, without_markers
from hrag.values.search import Passage

MAX_TEMPLATE_BYTES = 64 * 1024  # Far more than instructions take.

_VARIABLE = "HRAG_ANSWER_PROMPT_FILE"
_PLACEHOLDERS = {"question", "passages"}
_MAX_HEADING_CHARS = 256  # Enough to cite by; titles and section paths may have thousands.
_OVERHEAD = 0.25  # Twice what prose needs, so that it loses nothing.


class Prompt:
    """A template that has been checked."""

    def __init__(self, template: str) -> None:
        """Raises ValueError unless it has `$question` and `$passages`, and no other."""
        self._template = Template(template)
        if not self._template.is_valid():
            raise ValueError("it has a $ that is no placeholder; write $$ for a plain one")
        found = set(self._template.get_identifiers())
        if found != _PLACEHOLDERS:
            wrong = ", ".join(f"${name}" for name in sorted(found ^ _PLACEHOLDERS))
            raise ValueError(f"it must have $question and $passages and no other: see {wrong}")

    def __call__(self, question: str, passages: Sequence[Passage]) -> str:
        numbered = (_numbered(number, passage) for number, passage in enumerate(passages, 1))
        return self._template.substitute(question=question, passages="\n\n".join(numbered))


def _numbered(number: int, passage: Passage) -> str:
    """`[1] title - section, page 3`, and the content below, each line behind `> `."""
    chunk = passage.chunk
    heading = citations.heading(chunk)[:_MAX_HEADING_CHARS]
    heading = ", ".join(filter(None, (heading, citations.pages(chunk))))
    # What is plain by then: a hidden character would keep a number from being seen as one.
    content = without_markers(quoted_lines(chunk.content.strip()))
    return f"[{number}] {without_markers(heading)}\n{content}"


def fitting_prompt(passages: Sequence[Passage], token_budget: int) -> tuple[Passage, ...]:
    """Returns the first passages that fit into a prompt with their headings and quotes.

    `passages` fit the budget without these. The first one is always returned.
    """
    left = round(token_budget * (1 + _OVERHEAD))
    for number, passage in enumerate(passages, 1):
        left -= len(tokens.encode(_numbered(number, passage)))
        if left < 0:
            return tuple(passages[: max(number - 1, 1)])
    return tuple(passages)


def load_prompt(path: Path | None) -> Prompt:
    """The template in a file, or the built-in one; raises SettingsError for an unfit one."""
    if path is None:
        return Prompt(resources.files(__package__).joinpath("answer_prompt.txt").read_text("utf-8"))
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TEMPLATE_BYTES + 1)
        if len(content) > MAX_TEMPLATE_BYTES:
            raise ValueError(f"it has over {MAX_TEMPLATE_BYTES} bytes")
        return Prompt(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise SettingsError(f"{_VARIABLE} is '{path}': it is not UTF-8") from None
    except (OSError, ValueError) as error:
        raise SettingsError(f"{_VARIABLE} is '{path}': {error}") from None
