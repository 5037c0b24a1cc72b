"""The last step of a search: reads the best groups as passages or sentence contexts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Protocol

from hrag.engine.common.ancestor_groups import AncestorGroups
from hrag.engine.common.labels import split_label
from hrag.engine.common.rounds import Selection, select
from hrag.engine.find import FindRequest, PassageFields
from hrag.passages.cited_place import TermLocator
from hrag.passages.drafts import PassageDraft, passage_of
from hrag.passages.outline import Outline
from hrag.passages.sentence_context import SentenceContext, sentence_context
from hrag.passages.tree_text import TreePosition, TreeText
from hrag.values.deadline import Deadline
from hrag.values.reply_limit import SEARCH_ADVICE
from hrag.values.search import Passage, Retrieval
from hrag.values.tree import ChunkRecord
from hrag_fast import CitedDocument, PassageEncoder

_UNCHECKED = 16  # Chunks from one look at the deadline to the next: 0.3 ms.
_LEAST_SPAN_BYTES = 4  # Of a term or of a matched leaf.


class DocumentReader(Protocol):
    """Reads documents of one collection that exist in one snapshot, by ordinal."""

    def tree_text(self, ordinal: int) -> TreeText:
        """Returns the document, the same object each time."""

    def encoded(
        self,
        ordinal: int,
        encoder: PassageEncoder,
        fields: PassageFields,
        position: TreePosition,
        group: int,
        record: ChunkRecord | None,
        merged: Sequence[TreePosition],
        max_bytes: int,
    ) -> bytes:
        """Returns a group's chunk as an encoded passage, with the span of `record` if given.

        Raises OverflowError for one of more than `max_bytes`.
        """


@dataclass(frozen=True, slots=True)
class Fetch:
    """Reads what a request asks for in one snapshot.

    The size of passages is counted while they are read, each before its text is copied.
    """

    documents: DocumentReader
    request: FindRequest
    terms: TermLocator
    deadline: Deadline

    def passages(self, groups: AncestorGroups) -> tuple[tuple[Passage, ...], Selection]:
        """Returns the best groups as values."""
        drafts, selection = self._selected(groups)
        reply = self.request.reply
        passages = []
        for draft in drafts:
            self.deadline.check("reading passages")
            least_bytes = draft.least_bytes
            reply.check(least_bytes, SEARCH_ADVICE)
            leaves = groups.leaves(draft.groups)
            place = self.terms.cited_place(
                draft.document, groups.level, leaves, draft.record, spans=self._spans
            )
            least_bytes += _LEAST_SPAN_BYTES * (len(place.term_spans) + len(leaves))
            reply.check(least_bytes, SEARCH_ADVICE)
            reply = reply.after(least_bytes)
            passages.append(passage_of(draft, groups, place))
        return tuple(passages), selection

    def encoded_passages(
        self, fields: PassageFields, groups: AncestorGroups
    ) -> tuple[tuple[bytes, ...], Selection]:
        """Returns the same passages, each as an encoded hrag.v1.SearchResponse."""
        encoder = self._encoder(groups)
        keys = groups.keys[: self.request.limit]
        records = self._records(groups, keys)
        if records is None:
            drafts, selection = self._selected(groups)
            encoders = (partial(self._encoded, draft, groups, encoder, fields) for draft in drafts)
            return self._counted(encoders, drafts), selection
        encoders = (
            partial(
                self.documents.encoded,
                split_label(key)[0],
                encoder,
                fields,
                groups.position(key),
                group,
                record,
                (),
            )
            for group, (key, record) in enumerate(zip(keys, records, strict=True))
        )
        of_groups = Selection.of_groups(len(groups), self.request.limit)
        return self._counted(encoders, islice(self._drafts(groups), len(keys))), of_groups

    def _records(
        self, groups: AncestorGroups, keys: Sequence[int]
    ) -> list[ChunkRecord | None] | None:
        """The spans of the passages if these are the chunks of the groups with `keys`.

        A chunk is returned without the text of better ones, which only chunks of the same
        document share; the span of one that is whole is None. Returns None if the passages may
        be others: joined, cut, or left out.
        """
        request = self.request
        if request.token_budget or request.merge_adjacent or request.max_per_document:
            return None
        records: list[ChunkRecord | None] = [None] * len(keys)
        groups_of: dict[int, list[int]] = {}
        for group, key in enumerate(keys):
            groups_of.setdefault(split_label(key)[0], []).append(group)
        if request.keep_overlap or len(groups_of) == len(keys):
            return records
        sharing = sorted(chain.from_iterable(n for n in groups_of.values() if len(n) > 1))
        drafts = (self._draft(groups, keys[group], group) for group in sharing)
        selected = select(request, drafts, groups).drafts
        for draft in selected:
            records[draft.groups[0]] = draft.record
        return records if len(selected) == len(sharing) else None

    def _counted(
        self, encoders: Iterable[Callable[[int], bytes]], drafts: Iterable[PassageDraft]
    ) -> tuple[bytes, ...]:
        """Encodes passages one after the other; `drafts` are the same ones, for their sizes.

        Raises ReplyTooLarge at the first that does not fit.
        """
        reply = self.request.reply
        left, encoded = reply.left_bytes, []
        for encode in encoders:
            self.deadline.check("reading passages")  # Each may read headings for milliseconds.
            try:
                passage = encode(left)
            except OverflowError:
                at_least = sum(draft.least_bytes for draft in drafts)
                reply.check(max(at_least, reply.left_bytes + 1), SEARCH_ADVICE)
            encoded.append(passage)
            left -= len(passage)
        return tuple(encoded)

    def sentence_contexts(
        self, groups: AncestorGroups
    ) -> tuple[tuple[SentenceContext, ...], Selection]:
        """Returns the best groups' chunks with the sentences around them."""
        limit = self.request.limit
        reply, contexts = self.request.reply, []
        for draft in islice(self._drafts(groups), limit):
            reply.check(draft.content_bytes, SEARCH_ADVICE)
            reply = reply.after(draft.content_bytes)
            contexts.append(
                sentence_context(
                    draft.document,
                    draft.position,
                    groups.score(draft.groups[0]),
                    self.request.window_sentences,
                )
            )
        return tuple(contexts), Selection.of_groups(len(groups), limit)

    def _selected(self, groups: AncestorGroups) -> tuple[Sequence[PassageDraft], Selection]:
        selected = select(self.request, self._drafts(groups), groups)
        return selected.drafts, Selection.of_drafts(selected, len(groups), self.request)

    def _drafts(self, groups: AncestorGroups) -> Iterator[PassageDraft]:
        for group, key in enumerate(groups.keys):
            if not group % _UNCHECKED:
                self.deadline.check("reading chunks")
            yield self._draft(groups, key, group)

    def _draft(self, groups: AncestorGroups, key: int, group: int) -> PassageDraft:
        document = self.documents.tree_text(split_label(key)[0])
        return PassageDraft.of(document, groups.position(key), group)

    @property
    def _spans(self) -> bool:
        """Whether passages tell where terms are."""
        return self.request.retrieval is not Retrieval.DENSE

    def _encoder(self, groups: AncestorGroups) -> PassageEncoder:
        return PassageEncoder(
            groups.table.labels,
            groups.groups,
            groups.level,
            groups.lexical,
            groups.dense,
            self.terms.find,
            self.terms.weights,
            self._spans,
        )

    def _encoded(
        self,
        draft: PassageDraft,
        groups: AncestorGroups,
        encoder: PassageEncoder,
        fields: PassageFields,
        max_bytes: int,
    ) -> bytes:
        """`encoder` encodes all groups; joined passages need a new one."""
        group = draft.groups[0]
        ordinal = split_label(int(groups.groups.keys[group]))[0]
        if len(draft.groups) > 1:
            encoder, group = self._encoder(groups.joined(draft.groups)), 0
        return self.documents.encoded(
            ordinal,
            encoder,
            fields,
            draft.position,
            group,
            draft.record,
            draft.merged_positions(),
            max_bytes,
        )


def cited_document(outline: Outline, fields: PassageFields) -> CitedDocument:
    """Returns what encoded passages of a document share."""
    return CitedDocument(
        fields.document(outline.document_id, outline.title, outline.source, outline.metadata),
        outline.document_id.encode(),
        outline.section_path,
        (page.number for page in outline.pages),
        outline.page_starts,
        outline.section_starts,
        outline.heading_end,
    )
