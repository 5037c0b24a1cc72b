"""Types and documentation of the compiled `CitedDocument`."""

from collections.abc import Callable, Iterable, Sequence

class CitedDocument:
    """The data that all passages of one document share, encoded once for many searches.

    The object does not change, except for its cache of section paths.
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
        recognised: Iterable[bool] = (),
    ) -> None:
        """Stores the data. A section path is encoded when it is first needed.

        * `fields`: the encoded fields of hrag.v1.Chunk that describe the document.
        * `document_id`: the document's id in UTF-8.
        * `section_path`: a function. It is called once with the index of each section that is
          needed, and returns the titles from the outermost section down to this section.
        * `page_numbers`: for each page, in order, the number by which a citation names it.
        * `page_starts`: the offset in characters at which each page begins, ascending.
        * `section_starts`, `heading_end`: the same as in `matched_sentence`. Without
          `heading_end`, passages have no sentence to cite.
        * `recognised`: for each page, True if its text was recognised in a picture; empty if there
          is no such page.

        Raises ValueError if `page_numbers` and `page_starts` differ in length, or if `recognised`
        has another length and is not empty.
        """
