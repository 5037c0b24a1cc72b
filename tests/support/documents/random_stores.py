"""Random contents of stores, for tests of transfers.

`fill` writes random documents that use every field; a seed determines them. `contents` reads all
contents of a store as values that can be compared.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from hrag.engine.engine_documents import (
    DocumentSummaries,
    PreparedDocument,
    StoredDocument,
    Summary,
)
from hrag.engine.protocols import Reader, Writer
from hrag.types import CollectionSettings, SummaryUnit, TreeSettings
from hrag.values.tree import PageSpan, ParsedText, Section
from tests.support.documents.fakes import collection_settings, prepared, unit_vectors

SETTINGS = {
    ("acme", "Handbook"): collection_settings(summaries=SummaryUnit.SECTION),
    ("acme", "plain"): collection_settings(TreeSettings((64, 200), 0.25, 1), dimension=3),
    ("acme.co", "handbook"): replace(
        collection_settings(summaries=SummaryUnit.CHUNK), keep_originals=True
    ),
    ("b", "words"): replace(collection_settings(dimension=0), keep_originals=True),
    ("b", "empty"): collection_settings(analyzer=""),
}
ALIASES = {("acme", "live"): "Handbook", ("acme", "old"): "Handbook", ("b", "live"): "words"}
# These ids are in the order of their bytes. An engine that sorts texts by the rules of a language
# would return them in another order.
IDS = ("0", "A", "B-1", "a", "a-1", "a.1", "a1", "a:1", "a_1", "z" * 128)

_WORDS = (
    "tree",
    "naïve",
    "漢字、かな。",
    "🙂👩‍👩‍👧",
    "שלום",
    "e\u0301",
    "\u2028",
    "a\tb",
    "\n\n",
    "word. ",
)
_METADATA: tuple[dict[str, Any], ...] = (
    {},
    {"n": 1, "x": 1.0, "b": True, "none": None},
    {"ключ": ["a", {"": -0.5}], "tags": ["ü", ""], "big": 2**53},
)


def fill(writer: Writer, seed: int, max_documents: int = len(IDS)) -> None:
    """Creates collections and aliases, and puts up to `max_documents` documents into each.

    Some of the documents have summaries.
    """
    draw = random.Random(seed)
    for (tenant_id, name), settings in SETTINGS.items():
        writer.create_collection(tenant_id, name, settings)
        collection = writer.open(tenant_id, name)
        if name == "empty":
            continue
        for document_id in draw.sample(IDS, draw.randint(1, max_documents)):
            stored = _stored(draw, document_id, settings)
            info = writer.put_stored(collection, stored)
            # A document whose metadata was changed has no content hash.
            if draw.random() < 0.2:
                changed = {"changed": draw.random()}
                writer.put_metadata(collection, document_id, info.sequence, changed, "elsewhere")
    for (tenant_id, alias), name in ALIASES.items():
        writer.set_alias(tenant_id, alias, name)


def _stored(draw: random.Random, name: str, settings: CollectionSettings) -> StoredDocument:
    words = [draw.choice(_WORDS) for _ in range(draw.randint(1, 300))]
    text = " ".join(("Begin.", *words))
    cut = draw.randint(1, len(text) - 1)
    parsed = draw.choice(
        (
            ParsedText(text),
            ParsedText(text, (Section("Überschrift", 1, 0), Section("", 2, cut))),
            ParsedText(text, (), (PageSpan(3, 0, cut), PageSpan(4, cut, len(text)))),
        )
    )
    metadata = draw.choice(_METADATA)
    document = prepared(name, parsed, settings, draw.randrange(99), metadata=metadata)
    if draw.random() < 0.3:
        document = replace(document, title="", source="", mime_type="text/markdown")
    if settings.keep_originals and len(text) % 2:
        document = replace(document, original=text.encode())
    if settings.summaries is SummaryUnit.NONE:
        return StoredDocument(document)
    summary_count = draw.choice((None, 0, 2))
    return StoredDocument(
        document, None if summary_count is None else _summaries(draw, document, summary_count)
    )


def _summaries(draw: random.Random, document: PreparedDocument, limit: int) -> DocumentSummaries:
    leaves = len(document.vectors)
    texts = [Summary("全体: the whole.", range(leaves)), Summary("Its beginning.", range(1))][
        :limit
    ]
    vectors = unit_vectors(len(texts), draw.randrange(99), document.vectors.shape[1])
    return DocumentSummaries(tuple(texts), vectors)


def contents(reader: Reader) -> dict[tuple[str, str], Any]:
    """Returns everything in a store except its vectors, as values that can be compared.

    The keys are pairs of a tenant and the name of a collection or of an alias.
    """
    contents_by_name: dict[tuple[str, str], Any] = {}
    for collection in reader.collections():
        name = collection.tenant_id, collection.name
        contents_by_name[name] = collection, [_plain(stored) for stored in reader.export(*name)]
        contents_by_name |= {
            (collection.tenant_id, a.name): a.collection
            for a in reader.aliases(collection.tenant_id)
        }
    return contents_by_name


def _plain(stored: Any) -> tuple[Any, ...]:
    document, summaries = stored.document, stored.summaries
    return (
        *(document.document_id, document.title, document.source, document.mime_type),
        *(document.metadata_json, document.content_hash, document.parsed),
        *(document.tree.to_bytes(), document.vectors.shape),
        document.original,
        None if summaries is None else (summaries.summaries, summaries.vectors.shape),
    )


def vectors(reader: Reader) -> list[np.ndarray]:
    """Returns every vector of a store, each as `float32[dimension]`, in an order that is the same
    for equal stores.
    """
    rows: list[np.ndarray] = []
    for collection in reader.collections():
        for stored in reader.export(collection.tenant_id, collection.name):
            rows += list(stored.document.vectors)
            rows += list(stored.summaries.vectors) if stored.summaries else []
    return rows


class Killed(BaseException):
    """Ends a transfer in the middle. No error handler catches it, because it is no Exception."""


class MortalWriter:
    """A writer that raises Killed at its `at`-th commit of documents.

    If `committed` is true, it raises after this commit, before the caller gets the result.
    Otherwise it raises before this commit.
    """

    def __init__(self, writer: Writer, at: int, *, committed: bool) -> None:
        self._writer = writer
        self._commits = count(1)
        self._at = at
        self._committed = committed

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._writer, name)
        return self._counted(attribute) if name.startswith("put") else attribute

    def _counted(self, put: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            dies = next(self._commits) == self._at
            if dies and not self._committed:
                raise Killed
            result = put(*arguments)
            if dies:
                raise Killed
            return result

        return counted
