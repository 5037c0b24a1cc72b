"""Cuts a passage for a model whose input is limited to few tokens."""

from hrag.values.search import Passage


def cut_excerpt(passage: Passage, max_tokens: int) -> str:
    """Returns about `max_tokens` tokens of a passage's content, around its best leaf.

    The excerpt is centred on the leaf, except where the passage begins or ends. If the leaf is
    longer than the excerpt, the excerpt is the beginning of the leaf. Returns the whole content if
    it fits.

    How many characters make a token is estimated from the whole passage. An exact count is not
    worth its cost: counting the tokens of 32 passages takes about 50 ms, and the model that reads
    the text has a different tokenizer anyway.
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
