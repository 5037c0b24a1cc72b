"""Cuts a span of a document to a token budget, at the ends of sentences.

Tokens are counted as the document's tree counts them. So if a chunk is cut into parts, the parts
together have as many tokens as the chunk. White space between two sentences belongs to the token
after the white space, for example ` Next`. The same is true of white space between two chunks.

The tree does not store where each token ends, so the text of the span is tokenized again. The
tokens are the same as in the whole document only if some context on both sides is tokenized, too.
Before the span, the context starts at the end of the last run of letters or digits, where a token
always ends. After the span, one character is added if the span ends in white space, because the
tokenizer treats the last white space character before a word separately.
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
# CJK characters have code points from here on. Chinese and Japanese have no spaces between words,
# so a text may be cut between any two of these characters.
_FIRST_CJK = "\u2e80"
_MAX_CHARACTER_BYTES = 4  # UTF-8 needs at most 4 bytes per character.
# At most this many bytes before a span are searched for a letter or digit. If there are only other
# characters, they are a ruled line (`-----`). The tokens of a ruled line are the same wherever the
# tokenizer starts.
_MAX_RUN_BYTES = 64


def truncated(
    document: TreeText, record: ChunkRecord, kept_char: int, token_budget: int
) -> ChunkRecord | None:
    """Shortens a span to as many whole sentences as fit into `token_budget` tokens.

    `record` is the span to cut. The result includes the sentence that contains the code point
    `kept_char`. Returns None if this sentence alone does not fit.
    """
    sentences = _sentences(document, record)
    kept_index = next(
        index for index, sentence in enumerate(sentences) if sentence.char_end > kept_char
    )
    return _fitting(document, sentences, kept_index, token_budget)


def first_sentences(
    document: TreeText, record: ChunkRecord, token_budget: int
) -> ChunkRecord | None:
    """Shortens a span to its first whole sentences, as many as fit into `token_budget` tokens.

    Returns None if the first sentence alone does not fit.
    """
    return _fitting(document, _sentences(document, record), 0, token_budget)


def last_sentences(
    document: TreeText, record: ChunkRecord, token_budget: int
) -> ChunkRecord | None:
    """Shortens a span to its last whole sentences, as many as fit into `token_budget` tokens.

    Returns None if the last sentence alone does not fit.
    """
    return _fitting(document, _sentences(document, record)[::-1], 0, token_budget)


def first_words(document: TreeText, record: ChunkRecord, token_budget: int) -> ChunkRecord | None:
    """Shortens a span to its first whole words, as many as fit into `token_budget` tokens.

    If the first word does not fit, returns as many of its characters as fit. Returns None if not
    even one visible character fits.
    """
    span = _EncodedSpan(document, record)
    character_offsets = [span.character_at(end) for end in span.token_ends[:token_budget]]
    ends = [end for end in character_offsets if end is not None]
    words = [end for end in ends if not _is_inside_word(span.text, end)]
    if not ends:
        return None
    end = (words or ends)[-1]
    part = span.part(span.start, span.cut(end, len(span.text[:end].encode())))
    return _unless_blank(document, part)


def part_of(document: TreeText, record: ChunkRecord, char_start: int, char_end: int) -> ChunkRecord:
    """Returns the part of a span between two code points of the document, with its tokens."""
    span = _EncodedSpan(document, record)
    cuts = (
        span.cut(char, len(span.text[:char].encode()))
        for char in (char_start - record.char_start, char_end - record.char_start)
    )
    return span.part(*cuts)


class _Cut(NamedTuple):
    """A position in a span, in characters, bytes and tokens from the span's start.

    `token` is how many tokens end at or before the position, and `next_token` is how many tokens
    begin before it. If the position lies inside a token, `next_token` is `token` + 1; otherwise
    both are equal.
    """

    char: int
    byte: int
    token: int
    next_token: int


class _EncodedSpan:
    """A tokenized span of a document: its text, and where each of its tokens ends.

    The ends are offsets from the start of the span, in bytes, ascending.
    """

    start = _Cut(0, 0, 0, 0)

    def __init__(self, document: TreeText, record: ChunkRecord) -> None:
        self.record = record
        self.text = document.content(record)
        self.raw = self.text.encode()
        before, after = _symbols_before(document, record), ""
        if self.text[-1].isspace():
            after = _character_after(document, record)
        ends = tokens.byte_ends(tokens.encode(before + self.text + after)).tolist()
        first, last = len(before.encode()), len(before.encode()) + len(self.raw)
        self.token_ends = [end - first for end in ends if first < end < last] + [len(self.raw)]

    def cut(self, char: int, byte: int) -> _Cut:
        """Returns the position at an offset, which is given both in characters and in bytes.

        If the offset lies in the white space at the start of a token, returns the start of that
        token instead.
        """
        token = bisect_right(self.token_ends, byte)
        token_start = self.token_ends[token - 1] if token else 0
        prefix = self.raw[token_start:byte].decode(errors="replace")
        if prefix and not prefix.isspace():
            return _Cut(char, byte, token, token + 1)
        return _Cut(char - len(prefix), token_start, token, token)

    def character_at(self, byte: int) -> int | None:
        """Converts an offset in bytes into an offset in characters.

        Returns None if the byte is not the first byte of a character.
        """
        # In UTF-8, each byte of a character except its first byte has the highest bits 10.
        if byte < len(self.raw) and self.raw[byte] & 0xC0 == 0x80:
            return None
        return len(self.raw[:byte].decode())

    def part(self, start: _Cut, end: _Cut) -> ChunkRecord:
        """Returns the span between two positions.

        The token count of this span includes each token of which at least one byte lies in it.
        """
        record = self.record
        return record._replace(
            byte_start=record.byte_start + start.byte,
            byte_end=record.byte_start + end.byte,
            char_start=record.char_start + start.char,
            char_end=record.char_start + end.char,
            token_start=record.token_start + start.token,
            token_count=end.next_token - start.token,
        )


def _symbols_before(document: TreeText, record: ChunkRecord) -> str:
    """Returns the characters between the span and the last letter or digit before the span.

    If the document has no letter or digit before the span, the result begins where the document
    begins. Returns "" if the last letter or digit is more than _MAX_RUN_BYTES before the span.
    """
    start = max(record.byte_start - _MAX_RUN_BYTES, 0)
    text = str(document.part(start, record.byte_start), "utf-8", "ignore")
    run = _NO_LETTERS_AT_THE_END.search(text)
    assert run is not None  # The pattern matches at least the empty string at the end.
    return "" if start and run[0] == text else run[0]


def _character_after(document: TreeText, record: ChunkRecord) -> str:
    """Returns the character after a span; "" if it is white space or if the text ends there."""
    text = document.part(record.byte_end, record.byte_end + _MAX_CHARACTER_BYTES)
    return str(text, "utf-8", "ignore")[:1].strip()


def _is_inside_word(text: str, char: int) -> bool:
    """Returns True if there is a letter or digit on both sides of a position.

    CJK characters do not count as letters here, because Chinese and Japanese have no spaces between
    words.
    """
    sides = text[char - 1 : char + 1]
    return len(sides) == 2 and sides.isalnum() and max(sides) < _FIRST_CJK


def _sentences(document: TreeText, record: ChunkRecord) -> list[ChunkRecord]:
    """Splits a span into sentences; returns the span of each sentence, in order, without gaps."""
    span = _EncodedSpan(document, record)
    cuts = [span.start]
    start = byte = 0
    for end in sentence_ends(span.text):
        byte += len(span.text[start:end].encode())
        cuts.append(span.cut(end, byte))
        start = end
    return [span.part(start_cut, end_cut) for start_cut, end_cut in pairwise(cuts)]


def _fitting(
    document: TreeText, sentences: Sequence[ChunkRecord], keep: int, token_budget: int
) -> ChunkRecord | None:
    """Returns consecutive sentences that fit the token budget, as a span.

    `keep` is the index of a sentence that the result must include. Returns None if this sentence
    alone does not fit, or if the sentences are blank.
    """
    kept_range = fitting([sentence.token_count for sentence in sentences], keep, token_budget)
    if kept_range is None:
        return None
    return _unless_blank(document, covering(sentences[kept_range.start : kept_range.stop]))


def _unless_blank(document: TreeText, record: ChunkRecord) -> ChunkRecord | None:
    """Returns the span `record`, or None if its text is only white space."""
    return record if document.content(record).strip() else None
