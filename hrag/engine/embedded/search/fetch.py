"""The last step of a search: reads the best groups as passages or sentence contexts."""

from collections.abc import Iterator

import hrag_fast
from hrag.engine.embedded.search.ancestor_groups import AncestorGroups
from hrag.engine.embedded.search.documents import DocumentReader
from hrag.engine.embedded.store.labels import split_label
from hrag.engine.find import Describe, FindRequest
from hrag.passages.budget import PassageLimits, select_drafts
from hrag.passages.drafts import PassageDraft, passage_of
from hrag.passages.sentence_context import SentenceContext, sentence_context
from hrag.types import Passage


def passages(
    documents: DocumentReader, groups: AncestorGroups, request: FindRequest
) -> tuple[Passage, ...]:
    """Returns the best groups as values."""
    return tuple(passage_of(draft, groups) for draft in _selected(documents, groups, request))


def encoded_passages(
    documents: DocumentReader, describe: Describe, groups: AncestorGroups, request: FindRequest
) -> tuple[bytes, ...]:
    """Returns the same passages, each as an encoded hrag.v1.SearchResponse."""
    encoder = _encoder(groups, groups.groups)
    if not request.token_budget and not request.merge_adjacent:  # Chunks as they are stored.
        return tuple(
            documents.encoded(split_label(key)[0], encoder, describe, groups.position(key), group)
            for group, key in enumerate(groups.keys(request.limit))
        )
    return tuple(
        _encoded(documents, groups, draft, encoder, describe)
        for draft in _selected(documents, groups, request)
    )


def sentence_contexts(
    documents: DocumentReader, groups: AncestorGroups, request: FindRequest
) -> tuple[SentenceContext, ...]:
    """Returns the best groups' chunks with the sentences around them."""
    return tuple(
        sentence_context(
            documents.tree_text(split_label(key)[0]),
            groups.position(key),
            groups.score(group),
            request.window_sentences,
        )
        for group, key in enumerate(groups.keys(request.limit))
    )


def _selected(
    documents: DocumentReader, groups: AncestorGroups, request: FindRequest
) -> list[PassageDraft]:
    limits = PassageLimits(
        request.limit, request.token_budget, request.merge_adjacent, request.cut_last
    )
    return select_drafts(_drafts(documents, groups), limits, groups)


def _drafts(documents: DocumentReader, groups: AncestorGroups) -> Iterator[PassageDraft]:
    for group, key in enumerate(groups.keys()):
        document = documents.tree_text(split_label(key)[0])
        yield PassageDraft.of(document, groups.position(key), group)


def _encoder(groups: AncestorGroups, kernel: hrag_fast.Groups) -> hrag_fast.PassageEncoder:
    return hrag_fast.PassageEncoder(groups.view.labels, kernel, groups.level)


def _encoded(
    documents: DocumentReader,
    groups: AncestorGroups,
    draft: PassageDraft,
    encoder: hrag_fast.PassageEncoder,
    describe: Describe,
) -> bytes:
    """`encoder` encodes all groups; joined passages need a new one."""
    group = draft.groups[0]
    ordinal = split_label(int(groups.groups.keys[group]))[0]
    if len(draft.groups) > 1:
        encoder, group = _encoder(groups, groups.joined(draft.groups)), 0
    return documents.encoded(
        ordinal, encoder, describe, draft.position, group, draft.record, draft.merged_positions()
    )
