"""Encodes the results of searches whose passages the engine has encoded.

Only the retriever uses this module, because it needs the compiled kernels. The fields and their
numbers are those of SearchResponse in retriever.proto. The result is equal to the message that
`hrag.wire.retriever.search_response` returns for the same result.
"""

from collections.abc import Iterable

from hrag.v1 import retriever_pb2 as pb
from hrag.values.errors import HragError
from hrag.values.reply_limit import text_bytes
from hrag.values.search import ChosenSection, SearchResult
from hrag.wire.common import error_message
from hrag.wire.fields import nested_field
from hrag.wire.retriever import (
    MODE_NUMBER,
    PLAN_NUMBER,
    RETRIEVAL_NUMBER,
    section_message,
    standalone_message,
)
from hrag_fast import encode_fields

# All numbers in an encoded SearchResponse together, except those in its passages and sections, take
# at most _RESULT_BYTES bytes. All numbers in an encoded ChosenSection take at most _SECTION_BYTES
# bytes.
_RESULT_BYTES = 128
_SECTION_BYTES = 64
_NO_PASSAGES = None


def encoded_batch(outcomes: Iterable[SearchResult[bytes] | HragError]) -> bytes:
    """Returns an encoded BatchSearchResponse. Encoded passages are copied, not parsed."""
    return b"".join(
        part for outcome in outcomes for part in nested_field(1, _encoded_outcome(outcome))
    )


def _encoded_outcome(outcome: SearchResult[bytes] | HragError) -> bytes:
    if isinstance(outcome, HragError):
        return pb.SearchOutcome(error=error_message(outcome)).SerializeToString()
    return b"".join(nested_field(1, encoded_response(outcome)))


def encoded_bytes(result: SearchResult[bytes]) -> int:
    """Returns an upper bound, in bytes, of the size of `encoded_response(result)`.

    The real size is a little smaller.
    """
    size_bytes = sum(map(len, result.passages)) + _RESULT_BYTES
    if result.sections or result.fallback or result.rerank_failure:
        size_bytes += sum(map(_section_bytes, result.sections))
        size_bytes += text_bytes(result.fallback, result.rerank_failure)
    return size_bytes


def _section_bytes(section: ChosenSection) -> int:
    texts = text_bytes(section.document_id, section.title, section.summary)
    return texts + text_bytes(*section.section_path) + _SECTION_BYTES


def encoded_response(result: SearchResult[bytes]) -> bytes:
    """Returns an encoded SearchResponse.

    Each passage of the result is an encoded SearchResponse that contains only this passage. In
    protobuf, concatenated messages decode as one message that has the fields of all of them.
    """
    timings, sections, question = result.timings, result.sections, result.standalone_question
    fields = encode_fields(
        (
            _NO_PASSAGES,
            MODE_NUMBER[result.mode],
            result.matched_at_level,
            result.returned_at_level,
            result.candidates_considered,
            bool(result.exhausted),  # It may be a bool of numpy, which is no number.
            result.sequence,
            encode_fields(
                (
                    timings.embed_us,
                    timings.search_us,
                    timings.climb_us,
                    timings.fetch_us,
                    timings.total_us,
                    timings.filter_us,
                    timings.rerank_us,
                )
            ),
            None if result.plan is None else PLAN_NUMBER[result.plan],
            result.eligible_leaves,
            tuple(section_message(section).SerializeToString() for section in sections)
            if sections
            else None,
            RETRIEVAL_NUMBER[result.retrieval],
            result.reranked,
            result.rerank_failure,
            result.fallback,
            None if question is None else standalone_message(question).SerializeToString(),
        )
    )
    return b"".join((*result.passages, fields))
