"""The compiled functions on the hot path of every search and every ingest.

* `DenseSearch` finds the nearest leaves of a collection, in its segments and in its tail, and
  groups them by ancestor. It calls the other kernels in C.
* `Graph` finds the nearest leaves in an HNSW index (`search`) or scans them exactly (`scores`). A
  `GraphSearch` can continue where it stopped. `SegmentVectors` also has the rows of each vector.
* `Postings` finds leaves by BM25 in an inverted index. `postings_of` and `write_postings` build
  an inverted index. `forward_matches` finds the terms of a query in leaves that are in no inverted
  index. `hrag/text/bm25.py` has the formula.
* `unit_vector` scales the vector of a query to length 1.
* `rows_of_documents` finds the leaves of given documents, for example those that match a filter.
  `indexes_of` finds the places of rows in an array.
* `join_candidates` joins the leaves that two sources found.
* `climb` groups candidates by ancestor, ranks the groups, and returns them as `Groups`.
* `PassageEncoder` encodes passages as protobuf messages.
* `encode_fields` encodes small messages. `split_vector` takes a vector out of an encoded message.
* `JsonSchema` writes encoded messages as JSON. `json_size` counts the values of a JSON document
  before it is parsed.
* `boundary_ranks` ranks offsets of a text by how well the text can be cut there. The ranks are the
  constants whose names begin with `CUT_`.
* `sentence_ends` finds the sentences of a text. `matched_sentence` finds the sentence to cite.
* `UnigramTokenizer` finds the tokens of a text for the built-in embedding model.
  `SentenceEncoder`, with its `Int8Matrix`, computes vectors from these tokens.
* `UnigramSegmenter` and `BertEncoder`, with its `Q4Matrix`, do the same for the embedder e5-small.
* `TermExtractor` finds the terms of texts for the lexical index. `fold` and `inside_word` follow
  the same rules, so that other code can compare texts in the same way. `TermMatcher` finds the
  terms of a query in texts.

The functions receive arrays and texts, and return arrays and bytes. They know nothing of stores or
services. The `.pyi` files are the documentation. In the repository, `tests/twins` has twins of most
functions: the same functions in plain Python, which define the right results. If the extension is
not compiled, the import fails. There is no fallback in Python, because nobody would notice a
fallback that is only slow.
"""

try:
    from hrag_fast._analysis import (
        MAX_FREQUENCY,
        LeafTerms,
        Matches,
        TermExtractor,
        Token,
        Variant,
        term_id,
    )
    from hrag_fast._bert_encoder import BertEncoder, Q4Matrix
    from hrag_fast._bm25 import Postings
    from hrag_fast._boundaries import (
        CUT_CODE_POINT,
        CUT_FORBIDDEN,
        CUT_PARAGRAPH,
        CUT_SENTENCE,
        CUT_WORD,
        boundary_ranks,
    )
    from hrag_fast._characters import MAX_CLUSTER, Folding, inside_word
    from hrag_fast._cited import MAX_SECTIONS_TRIED, REACH, matched_sentence, merged_spans
    from hrag_fast._cited_document import CitedDocument
    from hrag_fast._climb import COUNT, MAX, MEAN, SUM, Groups, climb
    from hrag_fast._dense import SEARCH_COST, DenseSearch, NearestRows, SegmentVectors
    from hrag_fast._folded_text import fold
    from hrag_fast._forward import forward_matches
    from hrag_fast._graph import Graph, GraphSearch
    from hrag_fast._join_candidates import JoinedCandidates, join_candidates
    from hrag_fast._json_scan import json_size
    from hrag_fast._message_fields import encode_fields, split_vector
    from hrag_fast._passages import PassageDocument, PassageEncoder
    from hrag_fast._postings_writer import postings_of, write_postings
    from hrag_fast._protojson import JsonSchema
    from hrag_fast._rows import indexes_of, rows_of_documents
    from hrag_fast._sentence_encoder import Int8Matrix, SentenceEncoder, supported_paths
    from hrag_fast._sentences import MAX_SENTENCE_CHARS, sentence_ends
    from hrag_fast._term_matcher import TermMatcher
    from hrag_fast._unigram import UnigramSegmenter, UnigramTokenizer
    from hrag_fast._unit_vector import unit_vector
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("hrag_fast."):
        raise
    raise ImportError(
        f"{error.name} is not compiled; install g++ and Python's headers (on Debian: apt install "
        "g++ python3-dev), then install hrag again: pip install --force-reinstall --no-cache-dir "
        "--no-deps hrag, or in a checkout: make setup",
        name=error.name,
    ) from error

__all__ = [
    "COUNT",
    "CUT_CODE_POINT",
    "CUT_FORBIDDEN",
    "CUT_PARAGRAPH",
    "CUT_SENTENCE",
    "CUT_WORD",
    "MAX",
    "MAX_CLUSTER",
    "MAX_FREQUENCY",
    "MAX_SECTIONS_TRIED",
    "MAX_SENTENCE_CHARS",
    "MEAN",
    "REACH",
    "SEARCH_COST",
    "SUM",
    "BertEncoder",
    "CitedDocument",
    "DenseSearch",
    "Folding",
    "Graph",
    "GraphSearch",
    "Groups",
    "Int8Matrix",
    "JoinedCandidates",
    "JsonSchema",
    "LeafTerms",
    "Matches",
    "NearestRows",
    "PassageDocument",
    "PassageEncoder",
    "Postings",
    "Q4Matrix",
    "SegmentVectors",
    "SentenceEncoder",
    "TermExtractor",
    "TermMatcher",
    "Token",
    "UnigramSegmenter",
    "UnigramTokenizer",
    "Variant",
    "boundary_ranks",
    "climb",
    "encode_fields",
    "fold",
    "forward_matches",
    "indexes_of",
    "inside_word",
    "join_candidates",
    "json_size",
    "matched_sentence",
    "merged_spans",
    "postings_of",
    "rows_of_documents",
    "sentence_ends",
    "split_vector",
    "supported_paths",
    "term_id",
    "unit_vector",
    "write_postings",
]
