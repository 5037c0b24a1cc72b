"""Cuts a span of a document to a token budget, at the ends of sentences.

Tokens are the document's own, as its tree counts them, so the parts of a chunk cost together
what the chunk costs. White space between sentences goes with the token behind it (` Next`),
as it does where chunks are cut.

The tree does not store where each token ends, so the text of the span is encoded again. To
give the document's tokens, it is encoded from the end of the last run of letters or digits
before it, where a token always ends, and with the character behind it where it ends in white
space, because the tokenizer treats the last character of white space before a word apart.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from hrag.passages.tree_text import TreeText
from hrag.text import tokens
from hrag.text.sentences import fitting, sentence_ends
from hrag.values.tree import ChunkRecord, covering

_NO_LETTERS_AT_THE_END = re.compile(r"[\W_]*\Z")
_FIRST_CJK = "\u2e80"  # Chinese, Japanese and what else has no spaces between words lies above.
_MAX_CHARACTER_BYTES = 4  # Of UTF-8.
_MAX_RUN_BYTES = 64  # Longer ones are ruled lines, whose tokens are alike from any start.


def truncated(
    document: TreeText, record: ChunkRecord, keep: ChunkRecord, token_budget: int
) -> ChunkRecord | None:
    """Returns as many whole sentences of a span as fit `token_budget` tokens, as a span.

    The sentence in which `keep` begins is among them; None if that alone does not fit.
    """
    sentences = _sentences(document, record)
    number = next(n for n, each in enumerate(sentences) if each.char_end > keep.char_start)
    return _fitting(document, sentences, number, token_budget)


def first_sentences(
    document: TreeText, record: ChunkRecord, token_budget: int
) -> ChunkRecord | None:
    """Returns the first whole sentences that fit, as a span; None if the first does not."""
    return _fitting(document, _sentences(document, record), 0, token_budget)


def last_sentences(
    document: TreeText, record: ChunkRecord, token_budget: int
) -> ChunkRecord | None:
    """Returns the last whole sentences that fit, as a span; None if the last does not."""
    return _fitting(document, _sentences(document, record)[::-1], 0, token_budget)


def first_words(document: TreeText, record: ChunkRecord, token_budget: int) -> ChunkRecord | None:
    """Returns the first whole words that fit `token_budget` tokens, as a span.

    If the first word does not fit, as many of its characters as do; None if there is no text
    then.
    """
    span = _EncodedSpan(document, record)
    places = [span.character_at(end) for end in span.token_ends[:token_budget]]
    ends = [end for end in places if end is not None]
    words = [end for end in ends if not _is_inside_word(span.text, end)]
    if not ends:
        return None
    end = (words or ends)[-1]
    part = span.part(span.start, span.cut(end, len(span.text[:end].encode())))
    return _unless_blank(document, part)


class _Cut(NamedTuple):
    """A place in a span, in characters, bytes and tokens from its start.

    `token` tokens end at or before it, and `next_token` begin before it. These differ, by
    one, only where the place lies inside a token.
    """

    char: int
    byte: int
    token: int
    next_token: int


class _EncodedSpan:
    """A span with its text, and the end of each of its tokens, in bytes, ascending."""

    start = _Cut(0, 0, 0, 0)

    def __init__(self, document: TreeText, record: ChunkRecord) -> None:
        self.record = record
        self.text = document.content(record)
        self.raw = self.text.encode()
        before, behind = _run_before(document, record), ""
        if self.text[-1].isspace():
            behind = _character_behind(document, record)
        ends = tokens.byte_ends(tokens.encode(before + self.text + behind)).tolist()
        first, last = len(before.encode()), len(before.encode()) + len(self.raw)
        self.token_ends = [end - first for end in ends if first < end < last] + [len(self.raw)]

    def cut(self, char: int, byte: int) -> _Cut:
        """Returns the place, or the start of the token in whose leading white space it lies."""
        token = bisect_right(self.token_ends, byte)
        before = self.token_ends[token - 1] if token else 0
        inside = self.raw[before:byte].decode(errors="replace")
        if inside and not inside.isspace():
            return _Cut(char, byte, token, token + 1)
        return _Cut(char - len(inside), before, token, token)

    def character_at(self, byte: int) -> int | None:
        """Returns the number of characters before a byte; None inside a character."""
        if byte < len(self.raw) and self.raw[byte] & 0xC0 == 0x80:  # A continuation byte.
            return None
        return len(self.raw[:byte].decode())

    def part(self, start: _Cut, end: _Cut) -> ChunkRecord:
        """Returns the text between two places, with every token of which it has any byte."""
        record = self.record
        return record._replace(
            byte_start=record.byte_start + start.byte,
            byte_end=record.byte_start + end.byte,
            char_start=record.char_start + start.char,
            char_end=record.char_start + end.char,
            token_start=record.token_start + start.token,
            token_count=end.next_token - start.token,
        )


def _run_before(document: TreeText, record: ChunkRecord) -> str:
    """The text between the span and the last letter or digit before it; "" if it is long."""
    start = max(record.byte_start - _MAX_RUN_BYTES, 0)
    text = str(document.part(start, record.byte_start), "utf-8", "ignore")
    run = _NO_LETTERS_AT_THE_END.search(text)
    assert run is not None  # It matches the empty end.
    return "" if start and run[0] == text else run[0]


def _character_behind(document: TreeText, record: ChunkRecord) -> str:
    """The character behind a span; "" if it is white space, or there is none."""
    text = document.part(record.byte_end, record.byte_end + _MAX_CHARACTER_BYTES)
    return str(text, "utf-8", "ignore")[:1].strip()


def _is_inside_word(text: str, char: int) -> bool:
    """Whether a place has a letter or digit on both sides, of a script that spaces its words."""
    sides = text[char - 1 : char + 1]
    return len(sides) == 2 and sides.isalnum() and max(sides) < _FIRST_CJK


def _sentences(document: TreeText, record: ChunkRecord) -> list[ChunkRecord]:
    """The sentences of a span as spans, in order and without gaps."""
    span = _EncodedSpan(document, record)
    cuts = [span.start]
    start = byte = 0
    for end in sentence_ends(span.text):
        byte += len(span.text[start:end].encode())
        cuts.append(span.cut(end, byte))
        start = end
    return [span.part(*each) for each in pairwise(cuts)]


def _fitting(
    document: TreeText, sentences: Sequence[ChunkRecord], keep: int, token_budget: int
) -> ChunkRecord | None:
    """Sentences next to each other, among them number `keep`, as a span; None without text."""
    kept = fitting([each.token_count for each in sentences], keep, token_budget)
    if kept is None:
        return None
    return _unless_blank(document, covering(sentences[kept.start : kept.stop]))


def _unless_blank(document: TreeText, record: ChunkRecord) -> ChunkRecord | None:
    return record if document.content(record).strip() else None
