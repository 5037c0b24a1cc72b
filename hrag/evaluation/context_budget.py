"""Cuts passages to a token budget, so that systems are compared at equal cost.

The passages fill the budget in their order. If a passage does not fit as a whole, it is cut, and
no further passage is used. Only the contents of passages count, in tokens of hrag's tokenizer.
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
    """The spans of documents that fit a budget, in order, and their total number of tokens."""

    spans: tuple[TextSpan, ...]
    tokens: int


def span_of(passage: Passage) -> TextSpan:
    """Returns the position of the passage's content in its document."""
    chunk = passage.chunk
    start = chunk.span.char_start
    return TextSpan(chunk.document_id, start, start + len(chunk.content))


def cut_to_budgets(passages: Iterable[Passage], budgets: Sequence[int]) -> dict[int, BudgetedText]:
    """Returns, for each budget, the text of the passages that fits the budget.

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
    """Returns the first passages, as many as the budget has tokens for.

    The content of the last returned passage is cut if it does not fit as a whole.
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
