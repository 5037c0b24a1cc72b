"""The part of a passage that a model with a short input should read."""

from hrag.values.search import Passage


def excerpt(passage: Passage, max_tokens: int) -> str:
    """Returns about `max_tokens` tokens of a passage's content, around its best leaf.

    The leaf lies in the middle as far as the passage reaches; of a longer leaf, its beginning.
    Returns the whole content if it fits. Tokens are estimated from the passage's own number of
    characters a token: the model that reads the text has other tokens anyway, and counting
    those of 32 passages takes some 50 ms.
    """
    chunk = passage.chunk
    content = chunk.content
    if chunk.token_count <= max_tokens:
        return content
    size = max(len(content) * max_tokens // chunk.token_count, 1)
    start = end = 0
    if passage.matched_children:
        best = passage.matched_children[0].span
        start = best.char_start - chunk.span.char_start
        end = best.char_end - chunk.span.char_start
    before = max(size - (end - start), 0) // 2
    first = max(min(start - before, len(content) - size), 0)
    return content[first : first + size]
