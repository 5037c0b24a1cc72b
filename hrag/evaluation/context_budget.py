"""Cuts passages to a token budget, so that systems are compared at equal cost.

The passages fill the budget in their order. If a passage does not fit as a whole, its end is cut
off, and no further passage is used. Only the tokens of the contents of passages count, as hrag's
tokenizer counts them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hrag.evaluation.questions import TextSpan
from hrag.text.tokens import byte_ends, encode
from hrag.values.search import Passage


@dataclass(frozen=True, slots=True)
class BudgetedText:
    """The text that fits a token budget: spans of documents, in the order of the passages.

    `tokens` is the total count of tokens of the spans.
    """

    spans: tuple[TextSpan, ...]
    tokens: int


def span_of(passage: Passage) -> TextSpan:
    """Returns the position of the passage's content in its document."""
    chunk = passage.chunk
    start = chunk.span.char_start
    return TextSpan(chunk.document_id, start, start + len(chunk.content))


def cut_to_budgets(passages: Iterable[Passage], budgets: Sequence[int]) -> dict[int, BudgetedText]:
    """Returns, for each token budget, as much of the passages' text as fits the budget.

    Stops reading passages when the largest budget is full.
    """
    cut: dict[int, list[TextSpan]] = {budget: [] for budget in budgets}
    used = 0
    for passage in passages:
        tokens = encode(passage.chunk.content)
        for budget, spans in cut.items():
            if chars := _chars_within(passage.chunk.content, tokens, budget - used):
                document_id, start, _ = span_of(passage)
                spans.append(TextSpan(document_id, start, start + chars))
        used += len(tokens)
        if used >= max(budgets):
            break
    return {budget: BudgetedText(tuple(spans), min(budget, used)) for budget, spans in cut.items()}


def cut_passages(passages: Iterable[Passage], budget: int) -> tuple[Passage, ...]:
    """Returns the first passages that together have at most `budget` tokens.

    If the last returned passage does not fit as a whole, the end of its content is cut off.
    """
    fitting: list[Passage] = []
    used = 0
    for passage in passages:
        content = passage.chunk.content
        tokens = encode(content)
        chars = _chars_within(content, tokens, budget - used)
        if not chars:
            break
        chunk = replace(passage.chunk, content=content[:chars])
        fitting.append(replace(passage, chunk=chunk))
        used += len(tokens)
    return tuple(fitting)


def _chars_within(content: str, tokens: NDArray[np.uint32], max_tokens: int) -> int:
    """Returns how many code points of `content` are completely in its first `max_tokens` tokens.

    `tokens` are the ids of all tokens of `content`.
    """
    if max_tokens >= len(tokens):
        return len(content)
    if max_tokens <= 0:
        return 0
    size_bytes = int(byte_ends(tokens)[max_tokens - 1])
    return len(content.encode()[:size_bytes].decode("utf-8", "ignore"))
