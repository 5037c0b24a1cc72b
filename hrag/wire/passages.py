"""Converts passages, with their matches and scores, to and from messages of retriever.proto."""

from collections.abc import Mapping
from typing import Any

from hrag.v1 import retriever_pb2 as pb
from hrag.v1 import types_pb2
from hrag.values.read_report import PageUnit
from hrag.values.search import MatchedChild, MatchedSentence, Passage, TermSpan
from hrag.wire.common import (
    chunk_from,
    chunk_message,
    page_unit_number,
    span_from,
    span_message,
    struct_message,
)
from hrag.wire.fields import optional_field


def encoded_passage(passage: Passage) -> bytes:
    """Returns an encoded SearchResponse that contains only this passage."""
    return pb.SearchResponse(passages=[passage_message(passage)]).SerializeToString()


class PassageFieldCodec:
    """Encodes the fields that all passages of a document share.

    Implements `hrag.engine.PassageFields`.
    """

    def document(
        self,
        document_id: str,
        title: str,
        source: str,
        metadata: Mapping[str, Any],
        page_unit: PageUnit | None,
    ) -> bytes:
        """Returns an encoded Chunk that has only these fields; they describe a document."""
        return types_pb2.Chunk(
            document_id=document_id,
            title=title,
            source=source,
            metadata=struct_message(metadata) if metadata else None,
            page_unit=page_unit_number(page_unit),
        ).SerializeToString()


PASSAGE_FIELDS = PassageFieldCodec()


def passage_message(passage: Passage) -> pb.Passage:
    return pb.Passage(
        chunk=chunk_message(passage.chunk),
        score=passage.score,
        matched_children=map(_child_message, passage.matched_children),
        merged_chunk_ids=passage.merged_chunk_ids,
        lexical_score=passage.lexical_score,
        dense_score=passage.dense_score,
        term_spans=map(_term_span_message, passage.term_spans),
        matched_sentence=_sentence_message(passage.matched_sentence),
        rerank_score=passage.rerank_score,
    )


def passage_from(message: pb.Passage) -> Passage:
    has_sentence = message.HasField("matched_sentence")
    return Passage(
        chunk=chunk_from(message.chunk),
        score=message.score,
        matched_children=tuple(map(_child_from, message.matched_children)),
        merged_chunk_ids=tuple(message.merged_chunk_ids),
        lexical_score=optional_field(message, "lexical_score"),
        dense_score=optional_field(message, "dense_score"),
        term_spans=tuple(TermSpan(span.char_start, span.char_end) for span in message.term_spans),
        matched_sentence=_sentence_from(message.matched_sentence) if has_sentence else None,
        rerank_score=optional_field(message, "rerank_score"),
    )


def _child_message(child: MatchedChild) -> pb.MatchedChild:
    return pb.MatchedChild(
        chunk_id=child.chunk_id,
        score=child.score,
        span=span_message(child.span),
        lexical_score=child.lexical_score,
        dense_score=child.dense_score,
    )


def _child_from(message: pb.MatchedChild) -> MatchedChild:
    return MatchedChild(
        chunk_id=message.chunk_id,
        score=message.score,
        span=span_from(message.span),
        lexical_score=optional_field(message, "lexical_score"),
        dense_score=optional_field(message, "dense_score"),
    )


def _term_span_message(span: TermSpan) -> pb.TermSpan:
    return pb.TermSpan(char_start=span.char_start, char_end=span.char_end)


def _sentence_message(sentence: MatchedSentence | None) -> pb.MatchedSentence | None:
    if sentence is None:
        return None
    return pb.MatchedSentence(
        span=span_message(sentence.span),
        section_path=sentence.section_path,
        first_page=sentence.first_page,
        last_page=sentence.last_page,
        recognised_pages=sentence.recognised_pages,
    )


def _sentence_from(message: pb.MatchedSentence) -> MatchedSentence:
    return MatchedSentence(
        span=span_from(message.span),
        section_path=tuple(message.section_path),
        first_page=message.first_page,
        last_page=message.last_page,
        recognised_pages=tuple(message.recognised_pages),
    )
