"""Types and documentation of the compiled passage encoder.

Arrays are one-dimensional and C-contiguous. Arrays and buffers may be read-only (LMDB's buffers)
and must not change while they are in use. A wrong dtype or shape raises ValueError, a wrong type
raises TypeError. The GIL is kept, because encoding a passage takes only about 2 us.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from hrag_fast._cited_document import CitedDocument
from hrag_fast._climb import Groups
from hrag_fast._term_matcher import TermMatcher

class PassageDocument:
    """A document from which passages are encoded. The object does not change."""

    def __init__(
        self,
        cited: CitedDocument,
        tree: Buffer,
        text: Buffer,
        checked: bytearray | None = None,
        block_bytes: int = 1,
    ) -> None:
        """Stores references to the arguments, without copies.

        * `cited`: the data that all passages of the document share.
        * `tree`: the document's tree, in the binary form of hrag.values.tree.
        * `text`: the document's whole text, UTF-8.
        * `checked`: one byte for each block of `block_bytes` bytes of the text: 1 if the block is
          verified, else 0. Other objects may change it. Without it, no block is known to be
          verified.

        Raises ValueError if `block_bytes` is 0.
        """

class PassageEncoder:
    """Encodes the passages of one search, each as a separate `hrag.v1.SearchResponse`.

    The concatenation of these messages is one SearchResponse with all passages.
    """

    def __init__(
        self,
        labels: NDArray[np.uint64],
        groups: Groups,
        leaf_level: int,
        lexical: NDArray[np.float32] | None = None,
        dense: NDArray[np.float32] | None = None,
        terms: TermMatcher | None = None,
        spans: bool = False,
    ) -> None:
        """Stores references to the arguments, without copies.

        * `labels`: uint64[n], the label of each row's leaf.
        * `groups`: the result of `climb`; its children are rows of `labels`.
        * `leaf_level`: the level of the leaves.
        * `lexical`, `dense`: each source's scores of the children, float32[children]; None if the
          source was not searched.
        * `terms`: finds the query's terms in texts, and has the weight of each term in the choice
          of a sentence; None if the query has no terms.
        * `spans`: True if passages have to say where terms occur.

        Raises ValueError if an array of scores and the array of children differ in length.
        """

    def passage(
        self,
        document: PassageDocument,
        level: int,
        index: int,
        group: int,
        record: tuple[int, ...] | None = None,
        merged: Sequence[tuple[int, int]] = (),
        max_bytes: int = ...,
        verify: Callable[[int, int, int], None] | None = None,
        ordinal: int = 0,
    ) -> bytes:
        """Returns one encoded passage: a chunk with the score and the children of a group.

        * `level`, `index`: the level and the index of the chunk.
        * `group`: the index of its group.
        * `record`: the fields of hrag.values.tree.CHUNK to use in place of the chunk's fields in
          the tree, for a span that is cut or widened.
        * `merged`: the level and the index of each chunk from which the passage was joined.
        * `max_bytes`: the size of the largest allowed passage; without it there is no limit.
        * `verify`: called with `ordinal` and with the start and the end, in bytes, of the part of
          the text that is read, before it is read. It is not called if all blocks of this part are
          checked. It raises if this part is damaged. The end may be past the end of the text.

        Children are cut to the passage's span; children outside of the span are left out. The
        sentence to cite comes from the first child inside the span (see `matched_sentence`), and
        the section of this sentence becomes the passage's section. Takes time linear in the bytes
        returned and the group's children.

        Raises IndexError for a level, chunk, group, child, row or leaf that does not exist. Raises
        ValueError for a malformed tree, a span outside the text, or a passage that has to cite a
        sentence but has no child. Raises OverflowError for a passage of more than `max_bytes`; if
        the text alone is too long, the error is raised before any text is read. Raises
        MemoryError, and the errors that the stemmer of `terms` and `verify` raise.
        """

    def passages(
        self,
        level: int,
        merged: Mapping[int, tuple[tuple[int, int], object]],
        limit: int,
        keep_overlap: bool,
        open_document: Callable[[int], PassageDocument],
        verify: Callable[[int, int, int], None] | None = None,
        check: Callable[[str], None] | None = None,
        max_bytes: int = ...,
    ) -> tuple[bytes, ...] | None:
        """Returns the encoded passages of the first `limit` groups, each from the group's chunk.

        The key of a group is the ordinal of a document and the index of a chunk at `level`, in the
        form of a label. Exception: if `merged` has the key, the first element of its value is the
        level and the index of the chunk. `open_document` returns the document with an ordinal; it
        is called once for each document. `check` is called with the name of this stage, before the
        first passage and then before a passage if the last call was a millisecond ago. It raises if
        the search shall stop.

        Without `keep_overlap`, text that a better passage of the same document has is left out of
        a passage, as in `hrag.passages.budget.choose_drafts_within_limits`.

        Returns None in two cases, in which the caller must choose the passages in another way: all
        passages together have more than `max_bytes` bytes, or a chunk that touches a better passage
        might be no passage, because what remains of it has no visible character or no child.
        `verify` is called as in `passage`. Raises the other errors of `passage`, and those of the
        functions that it calls.
        """
