"""Cuts a passage to whole sentences that fit a token budget."""

from itertools import pairwise

from hrag import tokens
from hrag.sentences import fitting, sentence_ends
from hrag.tree import ChunkRecord


def truncated(
    text: str, record: ChunkRecord, keep: ChunkRecord, token_budget: int
) -> ChunkRecord | None:
    """Returns the span of as many whole sentences of a chunk as fit `token_budget` tokens.

    `text` is the chunk's content. The sentence in which `keep` begins is among them; None
    if that sentence alone does not fit.
    """
    spans = list(pairwise([0, *sentence_ends(text)]))
    sizes = [len(tokens.encode(text[start:end])) for start, end in spans]
    wanted = max(keep.char_start - record.char_start, 0)
    number = next(number for number, (_, end) in enumerate(spans) if end > wanted)
    kept = fitting(sizes, number, token_budget)
    if kept is None:
        return None
    start, end = spans[kept[0]][0], spans[kept[-1]][1]
    byte_start = record.byte_start + len(text[:start].encode())
    return record._replace(
        byte_start=byte_start,
        byte_end=byte_start + len(text[start:end].encode()),
        char_start=record.char_start + start,
        char_end=record.char_start + end,
        token_count=len(tokens.encode(text[start:end])),
    )
