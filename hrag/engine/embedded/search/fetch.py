"""The last step of a search: reads the best groups as passages or sentence contexts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hrag.engine.embedded.search.ancestor_groups import AncestorGroups
from hrag.engine.embedded.search.documents import DocumentReader
from hrag.engine.embedded.store.labels import split_label
from hrag.engine.find import FindRequest, PassageFields
from hrag.engine.rounds import Selection, select
from hrag.passages.cited_place import TermLocator
from hrag.passages.drafts import PassageDraft, passage_of
from hrag.passages.sentence_context import SentenceContext, sentence_context
from hrag.types import Passage, Retrieval
from hrag_fast import PassageEncoder


@dataclass(frozen=True, slots=True)
class Fetch:
    """Reads what a request asks for in one transaction."""

    documents: DocumentReader
    request: FindRequest
    terms: TermLocator

    def passages(self, groups: AncestorGroups) -> tuple[tuple[Passage, ...], Selection]:
        """Returns the best groups as values."""
        drafts, selection = self._selected(groups)
        passages = []
        for draft in drafts:
            leaves = groups.leaves(draft.groups)
            place = self.terms.cited_place(
                draft.document, groups.level, leaves, draft.record, spans=self._spans
            )
            passages.append(passage_of(draft, groups, place))
        return tuple(passages), selection

    def encoded_passages(
        self, fields: PassageFields, groups: AncestorGroups
    ) -> tuple[tuple[bytes, ...], Selection]:
        """Returns the same passages, each as an encoded hrag.v1.SearchResponse."""
        keys = groups.keys[: self.request.limit]
        ordinals = [split_label(key)[0] for key in keys]
        encoder = self._encoder(groups)
        if not self._joins and len(set(ordinals)) == len(ordinals):
            # Nothing is joined, cut or left out, so the texts need not be looked at here.
            passages = (
                self.documents.encoded(ordinal, encoder, fields, groups.position(key), group)
                for group, (key, ordinal) in enumerate(zip(keys, ordinals, strict=True))
            )
            return tuple(passages), Selection.of_groups(len(groups), self.request.limit)
        drafts, selection = self._selected(groups)
        return tuple(self._encoded(draft, groups, encoder, fields) for draft in drafts), selection

    def sentence_contexts(
        self, groups: AncestorGroups
    ) -> tuple[tuple[SentenceContext, ...], Selection]:
        """Returns the best groups' chunks with the sentences around them."""
        limit = self.request.limit
        contexts = (
            sentence_context(
                self.documents.tree_text(split_label(key)[0]),
                groups.position(key),
                groups.score(group),
                self.request.window_sentences,
            )
            for group, key in enumerate(groups.keys[:limit])
        )
        return tuple(contexts), Selection.of_groups(len(groups), limit)

    def _selected(self, groups: AncestorGroups) -> tuple[Sequence[PassageDraft], Selection]:
        selected = select(self.request, self._drafts(groups), groups)
        return selected.drafts, Selection.of_drafts(selected, len(groups), self.request)

    def _drafts(self, groups: AncestorGroups) -> Iterator[PassageDraft]:
        for group, key in enumerate(groups.keys):
            document = self.documents.tree_text(split_label(key)[0])
            yield PassageDraft.of(document, groups.position(key), group)

    @property
    def _joins(self) -> bool:
        """Whether passages may be other than the groups' chunks, whatever the documents."""
        return bool(self.request.token_budget or self.request.merge_adjacent)

    @property
    def _spans(self) -> bool:
        """Whether passages tell where terms are."""
        return self.request.retrieval is not Retrieval.DENSE

    def _encoder(self, groups: AncestorGroups) -> PassageEncoder:
        return PassageEncoder(
            groups.view.labels,
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
        )
