"""The methods of the gRPC service IndexerService.

Each method decodes the request, calls the pipeline or the catalog, and encodes the response.
The server's interceptor turns errors into gRPC statuses.
"""

import threading
from collections.abc import Iterator
from functools import partial

import grpc

from hrag.observe import metrics
from hrag.server.auth import Role
from hrag.server.calls import call_audit
from hrag.server.calls.call import caller_role, to_hrag_error
from hrag.server.calls.call_deadline import deadline_of
from hrag.v1 import indexer_pb2 as pb
from hrag.v1 import indexer_pb2_grpc
from hrag.values.documents import ByteRange, IngestOutcome, IngestResult
from hrag.values.errors import HragError
from hrag.values.page_images import MAX_PAGE_SPANS
from hrag.wire import common, indexer
from hrag.wire.common import collection_or_default
from hrag.wire.filters import optional_filter_from
from indexer_svc.bulk import BulkLoad, DocumentReply, IngestRequest
from indexer_svc.ingest_pipeline import Pipeline
from indexer_svc.page_images import PageImages
from indexer_svc.reembedder import Reembedder
from indexer_svc.stored_catalog import StoredCatalog


class IndexerServicer(indexer_pb2_grpc.IndexerServiceServicer):
    """Implements the gRPC service IndexerService of protos/hrag/v1/indexer.proto.

    Setting `stopping` ends the streams of IngestDocuments with ServiceUnavailable.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        catalog: StoredCatalog,
        reembedder: Reembedder,
        pages: PageImages,
        stopping: threading.Event,
    ) -> None:
        self._pipeline = pipeline
        self._catalog = catalog
        self._reembedder = reembedder
        self._pages = pages
        self._stopping = stopping

    def ListTenants(
        self, request: pb.ListTenantsRequest, context: grpc.ServicerContext
    ) -> pb.ListTenantsResponse:
        listing = self._catalog.tenants(request.page_size, request.page_token, deadline_of(context))
        return indexer.tenants_response(listing)

    def CreateCollection(
        self, request: pb.CreateCollectionRequest, context: grpc.ServicerContext
    ) -> pb.CreateCollectionResponse:
        collection, sequence = self._pipeline.create_collection(
            request.tenant_id, request.name, common.settings_request_from(request.settings)
        )
        created = (request.tenant_id, collection.name)
        call_audit.record_change(
            "CreateCollection", context, *created, outcome="CREATED", sequence=sequence
        )
        return pb.CreateCollectionResponse(
            collection=common.collection_message(collection), sequence=sequence
        )

    def GetCollection(
        self, request: pb.GetCollectionRequest, context: grpc.ServicerContext
    ) -> pb.GetCollectionResponse:
        collection = self._catalog.collection(request.tenant_id, request.name)
        return pb.GetCollectionResponse(collection=common.collection_message(collection))

    def ListCollections(
        self, request: pb.ListCollectionsRequest, context: grpc.ServicerContext
    ) -> pb.ListCollectionsResponse:
        listing = self._catalog.collections(
            request.tenant_id, request.page_size, request.page_token
        )
        return indexer.collections_response(listing)

    def DeleteCollection(
        self, request: pb.DeleteCollectionRequest, context: grpc.ServicerContext
    ) -> pb.DeleteCollectionResponse:
        deleted = (request.tenant_id, request.name)
        sequence = self._catalog.delete_collection(*deleted)
        call_audit.record_change(
            "DeleteCollection", context, *deleted, outcome="DELETED", sequence=sequence
        )
        return pb.DeleteCollectionResponse(sequence=sequence)

    def ReembedCollection(
        self, request: pb.ReembedCollectionRequest, context: grpc.ServicerContext
    ) -> pb.ReembedCollectionResponse:
        named = (request.tenant_id, request.name)
        progress = self._reembedder.step(*named, deadline_of(context))
        if progress.embedded_documents or progress.sequence:
            call_audit.record_change(
                "ReembedCollection",
                context,
                *named,
                outcome="UPDATED",
                sequence=progress.sequence,
                documents=progress.embedded_documents,
            )
        return indexer.reembed_response(progress)

    def SetAlias(
        self, request: pb.SetAliasRequest, context: grpc.ServicerContext
    ) -> pb.SetAliasResponse:
        change = self._catalog.set_alias(request.tenant_id, request.alias, request.collection)
        alias, previous = change.alias, change.previous_collection
        if alias.collection != previous:
            call_audit.record_change(
                "SetAlias",
                context,
                request.tenant_id,
                alias.collection,
                outcome="UPDATED" if previous else "CREATED",
                sequence=change.sequence,
                alias=alias.name,
                previous=previous,
            )
        return indexer.alias_response(change)

    def DeleteAlias(
        self, request: pb.DeleteAliasRequest, context: grpc.ServicerContext
    ) -> pb.DeleteAliasResponse:
        sequence = self._catalog.delete_alias(request.tenant_id, request.alias)
        call_audit.record_change(
            "DeleteAlias",
            context,
            request.tenant_id,
            outcome="DELETED",
            sequence=sequence,
            alias=request.alias,
        )
        return pb.DeleteAliasResponse(sequence=sequence)

    def ListAliases(
        self, request: pb.ListAliasesRequest, context: grpc.ServicerContext
    ) -> pb.ListAliasesResponse:
        return indexer.aliases_response(self._catalog.aliases(request.tenant_id))

    def IngestDocument(
        self, request: pb.IngestDocumentRequest, context: grpc.ServicerContext
    ) -> pb.IngestDocumentResponse:
        collection = _collection_of(request)
        ingest = self._pipeline.validate if request.validate_only else self._pipeline.ingest
        with metrics.count_failed_document():
            result = ingest(
                *collection,
                common.document_from(request.document),
                deadline_of(context),
            )
        if request.validate_only:
            return indexer.ingest_response(result)
        _record_ingest("IngestDocument", context, *collection, result)
        return indexer.ingest_response(result)

    def IngestDocuments(
        self, requests: Iterator[pb.IngestDocumentsRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.IngestDocumentsResponse]:
        documents = map(_ingest_request, requests)
        load = BulkLoad(self._pipeline, documents, deadline_of(context), self._stopping)
        if not context.add_callback(load.cancel):
            load.cancel()
        return map(partial(_outcomes_response, context), load.run())

    def UpdateMetadata(
        self, request: pb.UpdateMetadataRequest, context: grpc.ServicerContext
    ) -> pb.UpdateMetadataResponse:
        key = (*_collection_of(request), request.document_id)
        change = indexer.metadata_change_from(request)
        updated = self._catalog.update_metadata(*key, change, deadline_of(context))
        if updated.outcome is not IngestOutcome.UNCHANGED:
            outcome, sequence = updated.outcome.name, updated.document.sequence
            call_audit.record_change(
                "UpdateMetadata", context, *key, outcome=outcome, sequence=sequence
            )
        return indexer.metadata_update_response(updated)

    def DeleteDocument(
        self, request: pb.DeleteDocumentRequest, context: grpc.ServicerContext
    ) -> pb.DeleteDocumentResponse:
        deleted = (*_collection_of(request), request.document_id)
        sequence = self._catalog.delete_document(*deleted)
        call_audit.record_change(
            "DeleteDocument", context, *deleted, outcome="DELETED", sequence=sequence
        )
        return pb.DeleteDocumentResponse(sequence=sequence)

    def DeleteDocuments(
        self, request: pb.DeleteDocumentsRequest, context: grpc.ServicerContext
    ) -> pb.DeleteDocumentsResponse:
        collection, deleted, sequence = _collection_of(request), 0, 0
        filter = optional_filter_from(request)
        try:
            for step in self._catalog.delete_documents(*collection, filter, deadline_of(context)):
                deleted, sequence = deleted + step.documents, step.sequence
                if step.documents:
                    call_audit.record_change(
                        "DeleteDocuments",
                        context,
                        *collection,
                        outcome="DELETED",
                        sequence=sequence,
                        documents=step.documents,
                    )
        except HragError as error:
            error.message += f"; {deleted:,} documents were deleted" if sequence else ""
            raise
        return pb.DeleteDocumentsResponse(deleted_count=deleted, sequence=sequence)

    def GetDocument(
        self, request: pb.GetDocumentRequest, context: grpc.ServicerContext
    ) -> pb.GetDocumentResponse:
        key = (*_collection_of(request), request.document_id)
        text, end = "", 0
        if request.HasField("text_range"):
            text_range = ByteRange(request.text_range.start, request.text_range.end)
            info, text, end = self._catalog.document_with_text(*key, text_range)
        elif request.include_text:
            info, text, _ = self._catalog.document_with_text(*key)
        else:
            info = self._catalog.document(*key)
        described = common.document_info_message(info)
        return pb.GetDocumentResponse(document=described, text=text, text_end=end)

    def GetPageImage(
        self, request: pb.GetPageImageRequest, context: grpc.ServicerContext
    ) -> pb.GetPageImageResponse:
        common.bounded(request.spans, MAX_PAGE_SPANS, "spans")
        image, info = self._pages.page(
            *_collection_of(request),
            request.document_id,
            request.page,
            request.dpi,
            [common.span_from(span) for span in request.spans],
            deadline_of(context),
        )
        return indexer.page_image_response(image, info.sequence)

    def ListDocuments(
        self, request: pb.ListDocumentsRequest, context: grpc.ServicerContext
    ) -> pb.ListDocumentsResponse:
        listing = self._catalog.documents(
            *_collection_of(request),
            request.page_size,
            request.page_token,
            optional_filter_from(request),
            deadline_of(context),
        )
        return indexer.documents_response(listing)

    def CountDocuments(
        self, request: pb.CountDocumentsRequest, context: grpc.ServicerContext
    ) -> pb.CountDocumentsResponse:
        count = self._catalog.count(
            *_collection_of(request), optional_filter_from(request), deadline_of(context)
        )
        return indexer.count_response(count)

    def GetIndexStatus(
        self, request: pb.GetIndexStatusRequest, context: grpc.ServicerContext
    ) -> pb.GetIndexStatusResponse:
        index = self._catalog.status(*_collection_of(request))
        is_admin = caller_role().includes(Role.ADMIN)
        return indexer.status_response(index if is_admin else index.without_store_wide())


def _ingest_request(request: pb.IngestDocumentsRequest) -> IngestRequest:
    return IngestRequest(
        *_collection_of(request),
        request.document.document_id,
        partial(common.document_from, request.document),
        validate_only=request.validate_only,
    )


def _outcomes_response(
    context: grpc.ServicerContext, answers: list[DocumentReply]
) -> pb.IngestDocumentsResponse:
    return pb.IngestDocumentsResponse(outcomes=map(partial(_outcome, context), answers))


def _outcome(context: grpc.ServicerContext, answer: DocumentReply) -> pb.DocumentOutcome:
    if isinstance(answer.outcome, Exception):
        metrics.document_failed(answer.outcome)
        error = to_hrag_error("IngestDocuments", answer.outcome)
        call_audit.document_refused(context, *answer.sent_as, error)
        return indexer.error_outcome(answer.document_id, error)
    if not answer.validate_only:
        _record_ingest("IngestDocuments", context, *answer.sent_as[:2], answer.outcome)
    return indexer.result_outcome(answer.outcome)


def _record_ingest(
    method: str,
    context: grpc.ServicerContext,
    tenant_id: str,
    collection: str,
    result: IngestResult,
) -> None:
    """Counts an ingested document in the metrics; writes it to the audit log if it has changed."""
    metrics.document_finished(result.outcome.name.lower())
    if result.outcome is not IngestOutcome.UNCHANGED:
        call_audit.record_change(
            method,
            context,
            tenant_id,
            collection,
            result.document_id,
            outcome=result.outcome.name,
            sequence=result.sequence,
        )


def _collection_of(
    request: pb.CountDocumentsRequest
    | pb.DeleteDocumentRequest
    | pb.DeleteDocumentsRequest
    | pb.IngestDocumentRequest
    | pb.IngestDocumentsRequest
    | pb.GetDocumentRequest
    | pb.GetPageImageRequest
    | pb.ListDocumentsRequest
    | pb.GetIndexStatusRequest
    | pb.UpdateMetadataRequest,
) -> tuple[str, str]:
    return request.tenant_id, collection_or_default(request.collection)
