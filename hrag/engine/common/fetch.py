"""The last step of a search: reads the passages of the best groups, in the requested form.

A group is a chunk with the matched leaves that it represents. A passage draft is a chunk that may
become a passage and whose text has not been read yet (class `hrag.passages.drafts.PassageDraft`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

from hrag.engine.common.ancestor_groups import AncestorGroups
from hrag.engine.common.labels import split_label
from hrag.engine.common.rounds import RoundOutcome, choose_drafts
from hrag.engine.find import (
    Encoded,
    FindRequest,
    PassageFields,
    RankedChunk,
    RankedChunks,
    ResultForm,
)
from hrag.passages.cited_place import TermLocator
from hrag.passages.drafts import PassageDraft, SentenceWindow, passage_of
from hrag.passages.outline import Outline
from hrag.passages.tree_text import TreePosition, TreeText
from hrag.values.deadline import Deadline
from hrag.values.reply_limit import SEARCH_ADVICE
from hrag.values.search import Passage, Retrieval, SearchMode
from hrag_fast import CitedDocument, PassageDocument, PassageEncoder

# The deadline is checked before every 16th chunk only, because reading 16 chunks takes no more than
# about 0.3 ms.
_CHUNKS_PER_CHECK = 16
# In an encoded passage, the span of a query term or of a matched leaf takes at least 4 bytes. The
# size of a reply is checked with this lower bound before the passages are created.
_MIN_SPAN_BYTES = 4

_Chunk: TypeAlias = tuple[int, TreePosition]
"""A chunk: the ordinal of its document, and its level and index."""


class DocumentReader(Protocol):
    """Reads documents of one collection, given their ordinals, in one snapshot.

    The documents must exist in the snapshot.
    """

    def tree_text(self, ordinal: int) -> TreeText:
        """Returns the tree and the text of the document with this ordinal.

        Repeated calls with the same ordinal return the same object.
        """

    def passage_document(self, fields: PassageFields, ordinal: int) -> PassageDocument:
        """Returns the document with this ordinal, from which passages can be encoded.

        `fields` encodes those fields of a passage that an engine cannot encode itself.
        """

    def verify(self, ordinal: int, start: int, end: int) -> None:
        """Reads and verifies the bytes from `start` to `end` of a document's text.

        `PassageDocument` needs a call before these bytes are read. `end` may be past the end of the
        text.
        """


@dataclass(slots=True)
class Fetch:
    """Reads the passages of one request from one snapshot, in the form `form`.

    It adds up the size of the reply, and checks the size before it copies the text of each passage.
    So the memory does not fill with the texts of a reply that is too large.
    """

    documents: DocumentReader
    request: FindRequest
    form: ResultForm[Any]
    terms: TermLocator
    deadline: Deadline

    def read(self, groups: AncestorGroups) -> tuple[tuple[Any, ...], RoundOutcome]:
        """Returns a passage, or a chunk with its key, for each of the best groups.

        `self.form` decides which of the two is returned, and how passages are encoded.
        A group is a chunk with the matched leaves that it represents. The RoundOutcome says whether
        groups were left out. Raises ReplyTooLarge, DeadlineExceeded or Cancelled.
        """
        match self.form:
            case Encoded(encode=encode) if self.request.rerank_scores:
                # `PassageEncoder` does not encode the scores of a reranker.
                passages, outcome = self._read_passages(groups)
                return tuple(map(encode, passages)), outcome
            case Encoded(fields=fields):
                return self._encode_passages(fields, groups)
            case RankedChunks():
                return self._read_ranked_chunks(groups)
            case _:
                return self._read_passages(groups)

    def _read_passages(self, groups: AncestorGroups) -> tuple[tuple[Passage, ...], RoundOutcome]:
        """Returns the best groups as passages (`Passage` values), best first.

        A group is a chunk with the matched leaves that it represents.
        """
        drafts, outcome = self._choose_drafts(groups)
        return self._passages(drafts, groups), outcome

    def _read_ranked_chunks(
        self, groups: AncestorGroups
    ) -> tuple[tuple[RankedChunk, ...], RoundOutcome]:
        """Returns the best groups as passages with their keys, best first.

        A group is a chunk with the matched leaves that it represents.
        """
        drafts, outcome = self._choose_drafts(groups)
        keys = groups.keys
        keys_of_drafts = (keys[draft.groups[0]] for draft in drafts)
        return tuple(map(RankedChunk, keys_of_drafts, self._passages(drafts, groups))), outcome

    def _passages(
        self, drafts: Iterable[PassageDraft], groups: AncestorGroups
    ) -> tuple[Passage, ...]:
        """Converts drafts of passages into passages, in the same order."""
        reply = self.request.reply
        passages = []
        for draft in drafts:
            self.deadline.check("reading passages")
            min_bytes = draft.least_bytes
            reply.check(min_bytes, SEARCH_ADVICE)
            leaves = groups.leaves(draft.groups)
            place = self.terms.cited_place(
                draft.document, groups.level, leaves, draft.record, spans=self._has_term_spans
            )
            min_bytes += _MIN_SPAN_BYTES * (len(place.term_spans) + len(leaves))
            reply.check(min_bytes, SEARCH_ADVICE)
            reply = reply.after(min_bytes)
            passages.append(passage_of(draft, groups, place))
        return tuple(passages)

    def _encode_passages(
        self, fields: PassageFields, groups: AncestorGroups
    ) -> tuple[tuple[bytes, ...], RoundOutcome]:
        """Returns the same passages as `_read_passages`, each as an encoded protobuf message.

        If no draft has to be joined, cut or left out, each group becomes one passage. Then one
        compiled call encodes all passages.
        """
        encoder, request = self._encoder(groups), self.request
        if self._is_passage_each:
            passages = encoder.passages(
                groups.ancestor_level,
                groups.merged,
                request.limit,
                request.keep_overlap,
                partial(self.documents.passage_document, fields),
                self.documents.verify,
                self.deadline.check,
                request.reply.left_bytes,
            )
            if passages is not None:
                return passages, RoundOutcome.of_groups(len(groups), request.limit)
        drafts, outcome = self._choose_drafts(groups)
        return self._encode_drafts(drafts, groups, encoder, fields), outcome

    @property
    def _is_passage_each(self) -> bool:
        """True if the request does not ask for passages that are joined, cut or left out."""
        request = self.request
        return not (
            request.token_budget
            or request.merge_adjacent
            or request.max_per_document
            or request.mode is SearchMode.SENTENCE_WINDOW
        )

    def _encode_drafts(
        self,
        drafts: Sequence[PassageDraft],
        groups: AncestorGroups,
        encoder: PassageEncoder,
        fields: PassageFields,
    ) -> tuple[bytes, ...]:
        """Encodes drafts of passages one after the other.

        Raises ReplyTooLarge at the first passage that does not fit into the reply.
        """
        reply = self.request.reply
        left_bytes, encoded = reply.left_bytes, []
        for draft in drafts:
            # Encoding one passage may take milliseconds, because the encoder may have to find where
            # headings end. So the deadline is checked before each passage.
            self.deadline.check("reading passages")
            try:
                passage = self._encode_draft(draft, groups, encoder, fields, left_bytes)
            except OverflowError:
                min_bytes = sum(draft.least_bytes for draft in drafts)
                reply.check(max(min_bytes, reply.left_bytes + 1), SEARCH_ADVICE)
            encoded.append(passage)
            left_bytes -= len(passage)
        return tuple(encoded)

    def _choose_drafts(self, groups: AncestorGroups) -> tuple[Sequence[PassageDraft], RoundOutcome]:
        """Chooses which drafts become passages.

        A group is a chunk with the matched leaves that it represents. A draft is a chunk that may
        become a passage; each group has one draft. The returned RoundOutcome says whether groups
        were left out.
        """
        chosen = choose_drafts(self.request, self._drafts(groups), groups)
        return chosen.drafts, RoundOutcome.of_drafts(chosen, len(groups), self.request)

    def _drafts(self, groups: AncestorGroups) -> Iterator[PassageDraft]:
        """Yields a draft for each group, best group first.

        A group is a chunk with the matched leaves that it represents. The draft of a group is this
        chunk, which may become a passage.
        """
        for group, key in enumerate(groups.keys):
            if not group % _CHUNKS_PER_CHECK:
                self.deadline.check("reading chunks")
            yield self._draft(groups, groups.chunk_of(key), group)

    def _draft(self, groups: AncestorGroups, chunk: _Chunk, group: int) -> PassageDraft:
        """Returns the draft for one group. A draft is a chunk that may become a passage.

        A group is a chunk with the matched leaves that it represents. `group` is the index of the
        group in `groups`, and `chunk` is its chunk.
        """
        ordinal, position = chunk
        document = self.documents.tree_text(ordinal)
        draft = PassageDraft.of(document, position, group)
        if self.request.mode is not SearchMode.SENTENCE_WINDOW:
            return draft
        leaves = groups.leaves(draft.groups)
        place = self.terms.cited_place(document, groups.level, leaves, draft.record, spans=True)
        if not place.term_spans:
            return draft
        return replace(draft, window=SentenceWindow(*place.sentence, self.request.window_sentences))

    @property
    def _has_term_spans(self) -> bool:
        """True if passages report where they contain the terms of the query."""
        return self.request.retrieval is not Retrieval.DENSE

    def _encoder(self, groups: AncestorGroups) -> PassageEncoder:
        """Returns an encoder that can convert each of `groups` into an encoded passage.

        A group is a chunk with the matched leaves that it represents.
        """
        return PassageEncoder(
            groups.table.labels,
            groups.groups,
            groups.level,
            groups.lexical,
            groups.dense,
            self.terms.matcher,
            self._has_term_spans,
        )

    def _encode_draft(
        self,
        draft: PassageDraft,
        groups: AncestorGroups,
        encoder: PassageEncoder,
        fields: PassageFields,
        max_bytes: int,
    ) -> bytes:
        """Returns a draft, which is a chunk or several joined chunks, as an encoded passage.

        A group is a chunk with the matched leaves that it represents. `encoder` can encode each of
        `groups`, but only one group at a time. So for a draft of several chunks, a new encoder is
        created, in which the groups of these chunks are joined into one group. Raises OverflowError
        if the passage takes more than `max_bytes`.
        """
        group = draft.groups[0]
        ordinal = split_label(int(groups.groups.keys[group]))[0]
        if len(draft.groups) > 1:
            encoder, group = self._encoder(groups.joined(draft.groups)), 0
        return encoder.passage(
            self.documents.passage_document(fields, ordinal),
            *draft.position,
            group,
            draft.record,
            draft.merged_positions(),
            max_bytes,
            self.documents.verify,
            ordinal,
        )


def cited_document(outline: Outline, fields: PassageFields) -> CitedDocument:
    """Encodes the fields of a document that are the same in all its passages, such as the title.

    They are encoded once for the document, and not again for each passage. `outline` contains
    these fields and the document's sections and pages.
    """
    return CitedDocument(
        fields.document(
            outline.document_id,
            outline.title,
            outline.source,
            outline.metadata,
            outline.page_unit if outline.pages else None,
        ),
        outline.document_id.encode(),
        outline.section_path,
        (page.number for page in outline.pages),
        outline.page_starts,
        outline.section_starts,
        outline.heading_end,
        outline.are_pages_recognised,
    )
