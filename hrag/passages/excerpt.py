"""The part of a passage that a model with a short input should read."""

from hrag import tokens
from hrag.types import Passage


def excerpt(passage: Passage, max_tokens: int) -> str:
    """Returns at most `max_tokens` tokens of a passage's content, around its best leaf.

    The leaf lies in the middle as far as the passage reaches; of a longer leaf, its beginning.
    Returns the whole content if it fits. A code point at an end that is not whole is left out.
    """
    chunk = passage.chunk
    if chunk.token_count <= max_tokens:
        return chunk.content
    content = chunk.content.encode()
    ends = tokens.byte_ends(tokens.encode(chunk.content))
    if len(ends) <= max_tokens:
        return chunk.content
    leaf_start, leaf_end = 0, 0
    if passage.matched_children:
        span, offset = passage.matched_children[0].span, chunk.span.byte_start
        leaf_start = int(ends.searchsorted(span.byte_start - offset, "right"))
        leaf_end = int(ends.searchsorted(span.byte_end - offset)) + 1
    before = max(max_tokens - (leaf_end - leaf_start), 0) // 2
    first = max(min(leaf_start - before, len(ends) - max_tokens), 0)
    start = int(ends[first - 1]) if first else 0
    return content[start : int(ends[first + max_tokens - 1])].decode("utf-8", "ignore")
