"""Types and documentation of the compiled passage encoder.

Arrays are one-dimensional and C-contiguous; they and buffers may be read-only (LMDB's own) and
must not change while they are in use. A wrong dtype or shape is a ValueError, a wrong type a
TypeError. The GIL is kept: a passage takes about 2 us.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from hrag_fast._analysis import Matches
from hrag_fast._climb import Groups

class CitedDocument:
    """What all passages of one document have in common, encoded once and used in many searches.

    It does not change, but for a cache of section paths.
    """

    def __init__(
        self,
        fields: bytes,
        document_id: bytes,
        section_path: Callable[[int], Sequence[str]],
        page_numbers: Iterable[int] = (),
        page_starts: Iterable[int] = (),
        section_starts: Iterable[int] = (),
        heading_end: Callable[[str, int, int], int] | None = None,
    ) -> None:
        """Keeps the parts; encodes a section path when it is first needed.

        * `fields`: the document's own fields of hrag.v1.Chunk, encoded.
        * `document_id`: in UTF-8.
        * `section_path`: returns the titles above a section; called once for each.
        * `page_numbers`: the number of each page, in order.
        * `page_starts`: the offset in characters at which each page begins, ascending.
        * `section_starts`, `heading_end`: as `matched_sentence` takes them. Without
          `heading_end`, passages name no sentence to cite.

        Raises ValueError if pages have other lengths than their starts.
        """

class PassageEncoder:
    """Encodes the passages of one search, each as a `hrag.v1.SearchResponse` of its own.

    Concatenated, these messages are one SearchResponse with all passages.
    """

    def __init__(
        self,
        labels: NDArray[np.uint64],
        groups: Groups,
        leaf_level: int,
        lexical: NDArray[np.float32] | None = None,
        dense: NDArray[np.float32] | None = None,
        find: Callable[[str], Matches] | None = None,
        weights: NDArray[np.float32] | None = None,
        spans: bool = False,
    ) -> None:
        """For groups as `climb` returns them, whose children are rows of `labels`, uint64[n].

        Leaves are chunks of `leaf_level`. `lexical` and `dense` are each source's scores of the
        children, float32[children]; None if it was not searched. `find` returns where the query's
        terms occur in a text, None if it has none; `weights`, float32[terms], say how much each
        counts for a sentence; `spans` says whether passages tell where terms are. Raises
        ValueError if the groups have other numbers of children than of children's scores.
        """

    def passage(
        self,
        document: CitedDocument,
        tree: Buffer,
        text: Buffer,
        level: int,
        index: int,
        group: int,
        record: tuple[int, ...] | None = None,
        merged: Sequence[tuple[int, int]] = (),
        max_bytes: int = ...,
        check: Callable[[int, int], None] | None = None,
    ) -> bytes:
        """Returns one encoded passage: a chunk with the score and the children of a group.

        * `tree`: the document's tree, as hrag.values.tree packs it.
        * `text`: the document's whole text, UTF-8.
        * `level`, `index`: which chunk.
        * `group`: index of its group.
        * `record`: the fields of hrag.values.tree.CHUNK to use instead of the chunk's own, for a
          span that is cut or widened.
        * `merged`: level and index of the chunks that it was joined from.
        * `max_bytes`: the largest passage; without it there is no limit.
        * `check`: called with the offsets in bytes of all that is read of the text, before it
          is; raises if that is damaged. The end may be past that of the text.

        Children are cut to the passage's span; those outside it are left out. The sentence to
        cite is that of the first child inside (see `matched_sentence`); the passage has its
        section. Takes time linear in the bytes returned and the group's children.

        Raises IndexError for a level, chunk, group, child, row or leaf that does not exist,
        ValueError for a malformed tree, a span outside the text, or a passage to cite without
        any child, OverflowError for a passage of more than `max_bytes`, where its text alone is
        too long before anything is read of it, MemoryError; and what `find` raises.
        """
