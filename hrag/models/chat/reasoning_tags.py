"""Separates the reasoning in a model's text from its answer, while the text arrives in pieces.

Many models write their reasoning between tags before they answer, for example between `<think>` and
`</think>`. Some servers put this reasoning into a field of its own; others leave it in the text.

Reasoning that begins with its opening tag is recognised at once. But the template of many models
has opened the tag already, at the end of the prompt. Their text begins with the reasoning and has
only the closing tag, so it looks like an answer until that tag arrives. Text that was passed on
cannot be taken back. So text without an opening tag is held back until its closing tag or its end
arrives, unless the model is known to write untagged text: then it is passed on at once. What is
known of a model (`TagUse`) is learned from its replies.

A closing tag after a backtick is a quotation, as in an answer that explains the tag.
"""

import re
from collections.abc import Iterable
from enum import Enum, auto

from hrag.values.answers import Reasoning

# The closing tag for each opening tag, in lower case: the tags that the parsers of vLLM, SGLang and
# llama.cpp know, and common variants of them.
_NAMES = """think thinking thought thoughts reasoning reason reflection seed:think mm:think
longcat_think ifm|think"""
_TAGS = {f"<{name}>": f"</{name}>" for name in _NAMES.split()} | {
    "[think]": "[/think]",
    "◁think▷": "◁/think▷",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|start_thinking|>": "<|end_thinking|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
    "<|channel>thought": "<channel|>",
    "<|channel|>analysis<|message|>": "<|channel|>final<|message|>",
    "<|start|>assistant<|channel|>analysis<|message|>": "<|channel|>final<|message|>",
    "[unused16]": "[unused17]",
    "<unused94>thought": "<unused95>",
}
# Some models put their answer between tags too. They are removed after reasoning.
_ANSWER_TAGS = {
    "<answer>": "</answer>",
    "<response>": "</response>",
    "<|begin_of_solution|>": "<|end_of_solution|>",
    "<|start_response|>": "<|end_response|>",
}
# No tag has more characters. This many at the end of a text may belong to a closing tag.
_MAX_TAG_CHARS = 64


def _pattern(tags: Iterable[str]) -> re.Pattern[str]:
    alternatives = "|".join(map(re.escape, sorted(set(tags))))
    return re.compile(rf"(?<!`)(?:{alternatives})", re.IGNORECASE)


_CLOSING = _pattern(_TAGS.values())

TextPiece = str | Reasoning


class TagUse(Enum):
    """How a model marks reasoning in its replies, as far as it is known.

    - UNKNOWN: the reasoning may have no opening tag.
    - UNTAGGED: a reply without an opening tag has no reasoning.
    - CLOSING: a reply without an opening tag begins with reasoning, at whose end is a closing tag.
    """

    UNKNOWN = auto()
    UNTAGGED = auto()
    CLOSING = auto()


class _TagState(Enum):
    START = auto()  # At the start of the text, where an opening tag may be.
    HELD = auto()  # In text that is reasoning if a closing tag follows.
    REASONING = auto()  # Between an opening and a closing tag.
    AFTER = auto()  # After reasoning, before the first character of the answer.
    TAGGED_ANSWER = auto()  # Between the tags of an answer.
    ANSWER = auto()


class ReasoningSplitter:
    """Divides the text of one reply into pieces of the answer (str) and of reasoning."""

    def __init__(self, tag_use: TagUse) -> None:
        """`tag_use` is what is known of the model before this reply."""
        self.tag_use = tag_use
        self._known_before = tag_use
        self._state = _TagState.START
        self._buffer = ""  # Text that may be part of a tag, and has not been passed on yet.
        self._held: list[str] = []  # The text that was read in the state HELD.
        self._before = ""  # The end of the text before the buffer; a tag may begin in it.
        self._closing = _CLOSING

    def feed(self, text: str) -> list[TextPiece]:
        """Adds a piece of the text; returns the nonempty pieces that are now known, in order."""
        self._buffer += text
        pieces: list[TextPiece] = []
        state = None
        while state is not self._state:
            state = self._state
            self._read(pieces)
        return pieces

    def expect_no_tags(self) -> list[TextPiece]:
        """Ends holding back text, because the server puts reasoning into a field of its own.

        Returns the text that was held back.
        """
        if self._state not in (_TagState.START, _TagState.HELD):
            return []
        self.tag_use = self._known_before = TagUse.UNTAGGED
        if self._state is _TagState.START:
            return []
        self._state = _TagState.ANSWER
        return self._released(is_reasoning=False) + self.feed("")

    def finish(self, *, is_complete: bool) -> list[TextPiece]:
        """Returns the rest of the text. After that, `tag_use` is what is known of the model.

        `is_complete` is False if the text was cut, for example at its maximum length.
        """
        is_cut_reasoning = self._known_before is TagUse.CLOSING and not is_complete
        is_untagged = self._state in (_TagState.START, _TagState.HELD)
        is_reasoning = self._state is _TagState.REASONING or (is_untagged and is_cut_reasoning)
        self._state = _TagState.ANSWER
        self._held.append(self._buffer)
        self._buffer = ""
        if is_reasoning:
            return self._released(is_reasoning=True)
        pieces = self._released(is_reasoning=False)
        if is_untagged and is_complete and pieces:
            self.tag_use = TagUse.UNTAGGED
        return pieces

    def _released(self, *, is_reasoning: bool) -> list[TextPiece]:
        """Returns the held text as one piece; an empty list if there is none."""
        text, self._held = "".join(self._held), []
        if not text:
            return []
        return [Reasoning(text) if is_reasoning else text]

    def _read(self, pieces: list[TextPiece]) -> None:
        """Reads the buffer as far as the state allows, and perhaps goes to another state."""
        match self._state:
            case _TagState.START | _TagState.AFTER:
                self._read_opening_tag()
            case _TagState.HELD:
                text, is_closed = self._read_to_closing_tag(_TagState.AFTER)
                self._held.append(text)
                if is_closed:
                    self.tag_use = TagUse.CLOSING
                    pieces += self._released(is_reasoning=True)
            case _TagState.REASONING:
                text, _ = self._read_to_closing_tag(_TagState.AFTER)
                if text:
                    pieces.append(Reasoning(text))
            case _TagState.TAGGED_ANSWER:
                text, _ = self._read_to_closing_tag(_TagState.ANSWER)
                if text:
                    pieces.append(text)
            case _TagState.ANSWER:
                if self._buffer:
                    self._check_passed_on()
                    pieces.append(self._buffer)
                self._buffer = ""

    def _check_passed_on(self) -> None:
        """Notes a closing tag in text that is passed on: the model may write only closing tags."""
        text = (self._before + self._buffer)[-len(self._buffer) - _MAX_TAG_CHARS :]
        if self.tag_use is TagUse.UNTAGGED and _CLOSING.search(text):
            self.tag_use = TagUse.UNKNOWN
        self._before = text[-_MAX_TAG_CHARS:]

    def _read_opening_tag(self) -> None:
        """Reads the opening tag at the start of the buffer, if there is one."""
        is_after = self._state is _TagState.AFTER
        tags = _TAGS | _ANSWER_TAGS if is_after else _TAGS
        start = self._buffer.lstrip()
        if is_after:
            self._buffer = start
        for opening, closing in tags.items():
            if start[: len(opening)].lower() == opening:
                self._buffer = start[len(opening) :]
                self._before = ""
                self._closing = _pattern([closing])
                self.tag_use = TagUse.UNKNOWN
                is_answer = opening in _ANSWER_TAGS
                self._state = _TagState.TAGGED_ANSWER if is_answer else _TagState.REASONING
                return
        if any(opening.startswith(start.lower()) for opening in tags):
            return
        holds = not is_after and self.tag_use is not TagUse.UNTAGGED
        self._state = _TagState.HELD if holds else _TagState.ANSWER

    def _read_to_closing_tag(self, state_after: _TagState) -> tuple[str, bool]:
        """Takes the text before the closing tag out of the buffer, and also the tag.

        Returns the text, and True if the tag has arrived. Otherwise, characters that may be its
        beginning stay in the buffer.
        """
        window = self._before + self._buffer
        start = len(self._before)
        found = self._closing.search(window, start)
        if found:
            text, self._buffer = window[start : found.start()], window[found.end() :]
            self._before = ""
            self._state = state_after
            return text, True
        end = max(0, len(self._buffer) - _MAX_TAG_CHARS)
        text, self._buffer = self._buffer[:end], self._buffer[end:]
        self._before = text[-1:] or self._before
        return text, False
