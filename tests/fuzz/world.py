"""Provides two tenants, one whose API key the fuzzer has and one with secrets, and valid messages.

All titles, sources, sections, pages and metadata of the tenant OTHER contain SECRET, and so do the
id of one of its documents and the name of one of its collections. The tenant id OTHER and all other
ids are not secret: messages are generated from them. No message contains SECRET.
"""

from collections.abc import Iterator
from functools import partial

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from hrag.client import Client
from hrag.types import Document, DocumentInfo, Page, SettingsRequest, SummaryUnit
from hrag.v1 import filter_pb2, indexer_pb2, retriever_pb2, types_pb2
from tests.support.documents.pdfs import pdf_of

SECRET = "quagga-4711"
OWN, OTHER = "acme", "globex"
SUMMARISED = "summarised"
DIMENSION = 64
SETTINGS = {"HRAG_EMBEDDER": f"hash:{DIMENSION}", "HIERARCHICAL_CHUNK_LEVELS": "32,64,128,256"}
"""Settings with small chunks, so that a document of some hundred words has chunks at all levels."""

_SENTENCES = "Dogs bark at night. They dig holes in gardens! 猫睡觉。它们喜欢鱼。 Fish swim?\n"
_GUIDE = "".join(
    f"# Part {part}\n\n{_SENTENCES * 6}\n## Details\n\n{_SENTENCES}" for part in range(4)
)
_DATED = {
    "team": "search",
    "year": 2026,
    "date": "2026-11-21",
    "tags": ["a", "b"],
    "by": {"x": None},
}


def restore_collections(client: Client) -> None:
    """Restores the collections of both tenants and deletes all their other collections."""
    for tenant, mark in ((OWN, "plain"), (OTHER, SECRET)):
        for alias in client.list_aliases(tenant):
            client.delete_alias(tenant, alias.name)
        while collections := client.list_collections(tenant).items:
            for collection in collections:
                client.delete_collection(tenant, collection.name)
        client.create_collection(tenant, SUMMARISED, SettingsRequest(summaries=SummaryUnit.SECTION))
        client.create_collection(tenant, f"{mark}-collection")
        for document in _documents(mark):
            client.ingest(tenant, document)
            client.ingest(tenant, document, collection=SUMMARISED)


def _documents(mark: str) -> Iterator[Document]:
    marked = partial(Document, title=f"Title {mark}", source=f"file:{mark}")
    text = _GUIDE.replace("Part", f"Part {mark}")
    metadata = {**_DATED, "mark": mark, mark: 1}
    yield marked(text, "guide", mime_type="text/markdown", metadata=metadata)
    yield marked((Page(f"One {mark}. ", 1), Page(_SENTENCES * 20, 7), Page("")), "pages")
    yield marked(f"Nobody knows {mark}.", f"{mark}-document", metadata={"year": 1})


def stored_of(client: Client, tenant: str) -> list[tuple[str, DocumentInfo, str]]:
    """Returns every document of a tenant: the collection's name, the document and its text."""
    return [
        (place.name, info, client.get_text(tenant, info.document_id, collection=place.name))
        for place in client.list_collections(tenant).items
        for info in client.list_documents(tenant, collection=place.name).items
    ]


def seeds() -> dict[Descriptor, list[Message]]:
    """Returns valid messages of every request type, by type."""
    messages: dict[Descriptor, list[Message]] = {}
    for message in (*_for_indexer(), *_for_retriever(), *_for_others()):
        messages.setdefault(message.DESCRIPTOR, []).append(message)
    return messages


NAMES = (
    OWN, OTHER, "default", "", SUMMARISED, "plain-collection", "new", "a.b-c_d",
    "guide", "pages", "plain-document", "doc:1",
    "guide#0.0", "guide#1.1", "guide#3.0", "pages#0.2", "guide#7.0", "guide#0.999999999",
    "Z3VpZGU=", "cGFnZXM", "default\n", "a" * 64, "a" * 65, "b" * 128, "b" * 129,
    "document_id", "title", "source", "metadata.year", "metadata.by.x", "metadata.tags",
    "metadata.", "metadata.date", "metadata." + "k" * 300, "text/plain", "text/markdown",
    "application/pdf", "Dogs bark at night.", "猫睡觉。", "hrag.v1.IndexerService",
    "mime_type", "format", "md",
    "hrag/v1/types.proto", "google.protobuf.Struct", "grpc.health.v1.Health",
)  # fmt: skip
"""Values for any text field: names and ids, most of which exist, and words."""


def _for_indexer() -> Iterator[Message]:
    pb = indexer_pb2
    levels = types_pb2.CollectionSettings(
        level_sizes=[32, 100], overlap_ratio=0.5, embedding_level=1, return_level=1, summaries=2
    )
    yield pb.CreateCollectionRequest(tenant_id=OWN, name="new")
    yield pb.CreateCollectionRequest(tenant_id=OWN, name="newer", settings=levels)
    yield pb.GetCollectionRequest(tenant_id=OWN, name=SUMMARISED)
    yield pb.ListTenantsRequest(page_size=2, page_token="ZGVmYXVsdA==")
    yield pb.ListCollectionsRequest(tenant_id=OWN, page_size=2, page_token="ZGVmYXVsdA==")
    yield pb.DeleteCollectionRequest(tenant_id=OWN, name="new")
    yield pb.DeleteCollectionRequest(tenant_id=OWN, name="default")
    for name in ("default", "missing"):
        yield pb.ReembedCollectionRequest(tenant_id=OWN, name=name)
    for alias, collection in (("new", "default"), ("new", SUMMARISED), (SUMMARISED, "default")):
        yield pb.SetAliasRequest(tenant_id=OWN, alias=alias, collection=collection)
    yield pb.DeleteAliasRequest(tenant_id=OWN, alias="new")
    yield pb.ListAliasesRequest(tenant_id=OWN)
    for document in _sent():
        for collection in ("", SUMMARISED):
            for request in (pb.IngestDocumentRequest, pb.IngestDocumentsRequest):
                yield request(tenant_id=OWN, collection=collection, document=document)
    yield pb.DeleteDocumentRequest(tenant_id=OWN, document_id="pages")
    yield pb.DeleteDocumentRequest(tenant_id=OWN, collection=SUMMARISED, document_id="guide")
    for document in _sent():
        request = pb.UpdateMetadataRequest(tenant_id=OWN, document_id="guide")
        request.metadata.CopyFrom(document.metadata)
        request.remove_keys.append("year")
        yield request
        yield pb.UpdateMetadataRequest(
            tenant_id=OWN, document_id="guide", source=document.source, replace=True
        )
    yield pb.GetDocumentRequest(tenant_id=OWN, document_id="guide", include_text=True)
    yield pb.GetPageImageRequest(tenant_id=OWN, document_id="guide", page=1, dpi=50)
    yield pb.ListDocumentsRequest(tenant_id=OWN, page_size=2, page_token="Z3VpZGU=")
    for search in _searches():
        if search.HasField("filter"):
            yield pb.ListDocumentsRequest(tenant_id=OWN, filter=search.filter)
            yield pb.CountDocumentsRequest(tenant_id=OWN, filter=search.filter)
            yield pb.DeleteDocumentsRequest(tenant_id=OWN, filter=search.filter)
    yield pb.GetIndexStatusRequest(tenant_id=OWN, collection=SUMMARISED)


def _sent() -> Iterator[types_pb2.Document]:
    plain = types_pb2.Document(document_id="new", title="t", source="s", text=_SENTENCES * 8)
    plain.metadata.update({"a": [1, {"b": "c", "d": None}], "date": "2026-01-01T00:00:00Z"})
    yield plain
    yield types_pb2.Document(mime_type="text/markdown", text=_GUIDE)
    yield types_pb2.Document(content=_SENTENCES.encode(), document_id="guide")
    yield types_pb2.Document(content=pdf_of(["Fish swim.\nDogs bark.", "Cats sleep."]))
    pages = [types_pb2.Page(text=text, number=number) for number, text in enumerate("ab ")]
    yield types_pb2.Document(pages=types_pb2.Pages(pages=pages))


def _for_retriever() -> Iterator[Message]:
    pb = retriever_pb2
    searches = list(_searches())
    yield from searches
    yield from (pb.BatchSearchRequest(searches=searches[start : start + 3]) for start in range(5))
    yield from (pb.AnswerRequest(search=search, question="why?") for search in searches)
    yield pb.AnswerRequest(search=searches[0], max_tokens=100)
    for chunk_id in ("guide#0.3", "pages#3.0"):
        yield pb.GetChunkRequest(tenant_id=OWN, chunk_id=chunk_id)
        yield pb.GetHierarchyRequest(
            tenant_id=OWN, collection=SUMMARISED, chunk_id=chunk_id, depth=8, include_content=True
        )
    yield pb.GetOriginalRequest(tenant_id=OWN, document_id="guide", start=3, end=9)
    yield pb.RetrieverServiceGetDocumentRequest(
        tenant_id=OWN, document_id="guide", include_text=True, filter=_filter()
    )
    yield pb.GetServerInfoRequest()


def _searches() -> Iterator[retriever_pb2.SearchRequest]:
    search = partial(retriever_pb2.SearchRequest, tenant_id=OWN)
    vector = retriever_pb2.Vector(values=[0.1] * DIMENSION)
    yield search(text="dogs", filter=_filter(), limit=3, merge_adjacent=True)
    yield search(vector=vector, mode=1, return_level=3, candidates=5, aggregation=2, min_score=0.0)
    yield search(text="cats", mode=2, token_budget=64, cut_last=True, aggregation=4)
    yield search(vector=vector, mode=3, merge_ratio=0.3, min_sequence=1, limit=100)
    yield search(text="fish", mode=4, window_sentences=2, candidates=7, merge_adjacent=True)
    yield search(text="fish", mode=5, collection=SUMMARISED, top_sections=2, summary_scope=2)


def _filter() -> filter_pb2.Filter:
    pb = filter_pb2
    value, bound = pb.FilterValue, pb.RangeBound
    dated = pb.FieldRange(field="metadata.date", at_least=bound(timestamp={"seconds": 1}))
    year = pb.FieldRange(field="metadata.year", above=bound(number=1), below=bound(number=3000))
    values = [value(text="search"), value(number=1), value(flag=True)]
    team = pb.FieldMatch(field="metadata.team", values=values)
    either = pb.FilterList(
        filters=[
            pb.Filter(range=year),
            pb.Filter(match=team),
            pb.Filter(none_of={"filters": [pb.Filter(exists={"field": "title"})]}),
        ]
    )
    return pb.Filter(all_of={"filters": [pb.Filter(any_of=either), pb.Filter(range=dated)]})


def _for_others() -> Iterator[Message]:
    yield health_pb2.HealthCheckRequest(service="hrag.v1.RetrieverService")
    yield health_pb2.HealthListRequest()
    pb = reflection_pb2.ServerReflectionRequest
    yield pb(list_services="")
    yield pb(file_containing_symbol="hrag.v1.IndexerService")
    yield pb(file_by_filename="hrag/v1/types.proto")
    yield pb(all_extension_numbers_of_type="google.protobuf.FieldOptions")
    extension = reflection_pb2.ExtensionRequest(
        containing_type="google.protobuf.FieldOptions", extension_number=1000
    )
    yield pb(file_containing_extension=extension)
