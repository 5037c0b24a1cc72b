"""Converts values to and from the messages of indexer.proto."""

from collections.abc import Mapping
from dataclasses import asdict

from hrag.v1 import indexer_pb2 as pb
from hrag.values.collections import Alias, AliasChange, Collection, Listing, ReembedProgress
from hrag.values.documents import (
    DocumentCount,
    DocumentDeletion,
    DocumentInfo,
    IngestOutcome,
    IngestResult,
    MetadataChange,
    MetadataUpdate,
)
from hrag.values.errors import HragError
from hrag.values.limits import MAX_METADATA_VALUES
from hrag.values.page_images import PageImage, SpanBox
from hrag.values.quotas import Quota, Tenant, TenantUsage
from hrag.values.read_report import LeftOut, LeftOutKind, ReadReport
from hrag.values.status import EmbeddedIndexStatus, IndexStatus, Segment
from hrag.wire.common import (
    bounded,
    built,
    collection_from,
    collection_message,
    document_info_from,
    document_info_message,
    error_from,
    error_message,
    metadata_from,
    page_unit_from,
    page_unit_number,
    struct_message,
)

_OUTCOME_NUMBER = {
    IngestOutcome.CREATED: pb.INGEST_OUTCOME_CREATED,
    IngestOutcome.UPDATED: pb.INGEST_OUTCOME_UPDATED,
    IngestOutcome.UNCHANGED: pb.INGEST_OUTCOME_UNCHANGED,
}
_OUTCOME = {number: outcome for outcome, number in _OUTCOME_NUMBER.items()}
_LEFT_OUT_NUMBER = {
    LeftOutKind.RUNNING_HEAD: pb.LEFT_OUT_KIND_RUNNING_HEAD,
    LeftOutKind.PAGE_NUMBER: pb.LEFT_OUT_KIND_PAGE_NUMBER,
    LeftOutKind.CONTENTS_PAGE: pb.LEFT_OUT_KIND_CONTENTS_PAGE,
    LeftOutKind.BOILERPLATE: pb.LEFT_OUT_KIND_BOILERPLATE,
    LeftOutKind.OUTPUT: pb.LEFT_OUT_KIND_OUTPUT,
    LeftOutKind.ATTACHMENT: pb.LEFT_OUT_KIND_ATTACHMENT,
    LeftOutKind.METADATA: pb.LEFT_OUT_KIND_METADATA,
    LeftOutKind.SLANTED_TEXT: pb.LEFT_OUT_KIND_SLANTED_TEXT,
}
_LEFT_OUT_KIND: Mapping[int, LeftOutKind] = {
    number: kind for kind, number in _LEFT_OUT_NUMBER.items()
}


def ingest_response(result: IngestResult) -> pb.IngestDocumentResponse:
    return pb.IngestDocumentResponse(
        document_id=result.document_id,
        outcome=_OUTCOME_NUMBER[result.outcome],
        sequence=result.sequence,
        chunks_per_level=result.chunks_per_level,
        token_count=result.token_count,
        report=None if result.report is None else report_message(result.report),
    )


def ingest_result_from(message: pb.IngestDocumentResponse) -> IngestResult:
    return IngestResult(
        document_id=message.document_id,
        outcome=_OUTCOME[message.outcome],
        sequence=message.sequence,
        chunks_per_level=tuple(message.chunks_per_level),
        token_count=message.token_count,
        report=_report_from(message.report) if message.HasField("report") else None,
    )


def report_message(report: ReadReport) -> pb.ReadReport:
    return pb.ReadReport(
        mime_type=report.mime_type,
        encoding=report.encoding,
        encoding_guessed=report.is_encoding_guessed,
        page_count=report.page_count,
        page_unit=page_unit_number(report.page_unit if report.page_count else None),
        section_count=report.section_count,
        table_count=report.table_count,
        recognised_pages=report.recognised_pages,
        unread_pages=report.unread_pages,
        advice=report.advice,
        left_out=[
            pb.LeftOut(
                kind=_LEFT_OUT_NUMBER[part.kind], part_count=part.part_count, example=part.example
            )
            for part in report.left_out
        ],
    )


def _report_from(message: pb.ReadReport) -> ReadReport:
    """Returns a report; leaves out kinds of parts that only a newer server knows."""
    return ReadReport(
        encoding=message.encoding,
        table_count=message.table_count,
        recognised_pages=tuple(message.recognised_pages),
        unread_pages=tuple(message.unread_pages),
        advice=message.advice,
        left_out=tuple(
            LeftOut(_LEFT_OUT_KIND[part.kind], part.part_count, part.example)
            for part in message.left_out
            if part.kind in _LEFT_OUT_KIND
        ),
        mime_type=message.mime_type,
        is_encoding_guessed=message.encoding_guessed,
        page_count=message.page_count,
        section_count=message.section_count,
        page_unit=page_unit_from(message.page_unit),
    )


def result_outcome(result: IngestResult) -> pb.DocumentOutcome:
    return pb.DocumentOutcome(result=ingest_response(result))


def error_outcome(document_id: str, error: HragError) -> pb.DocumentOutcome:
    return pb.DocumentOutcome(
        error=pb.DocumentError(document_id=document_id, error=error_message(error))
    )


def outcome_from(message: pb.DocumentOutcome) -> IngestResult | HragError:
    if message.HasField("result"):
        return ingest_result_from(message.result)
    return error_from(message.error.error)


def collections_response(listing: Listing[Collection]) -> pb.ListCollectionsResponse:
    return pb.ListCollectionsResponse(
        collections=map(collection_message, listing.items),
        next_page_token=listing.next_page_token,
    )


def collections_from(message: pb.ListCollectionsResponse) -> Listing[Collection]:
    return Listing(tuple(map(collection_from, message.collections)), message.next_page_token)


def reembed_response(progress: ReembedProgress) -> pb.ReembedCollectionResponse:
    return pb.ReembedCollectionResponse(
        collection=collection_message(progress.collection),
        embedded_documents=progress.embedded_documents,
        remaining_documents=progress.remaining_documents,
        is_finished=progress.is_finished,
        sequence=progress.sequence,
    )


def reembed_progress_from(message: pb.ReembedCollectionResponse) -> ReembedProgress:
    return ReembedProgress(
        collection=collection_from(message.collection),
        embedded_documents=message.embedded_documents,
        remaining_documents=message.remaining_documents,
        is_finished=message.is_finished,
        sequence=message.sequence,
    )


def alias_response(change: AliasChange) -> pb.SetAliasResponse:
    return pb.SetAliasResponse(
        alias=_alias_message(change.alias),
        previous_collection=change.previous_collection,
        sequence=change.sequence,
    )


def alias_change_from(message: pb.SetAliasResponse) -> AliasChange:
    return AliasChange(_alias_from(message.alias), message.previous_collection, message.sequence)


def aliases_response(aliases: tuple[Alias, ...]) -> pb.ListAliasesResponse:
    return pb.ListAliasesResponse(aliases=map(_alias_message, aliases))


def aliases_from(message: pb.ListAliasesResponse) -> tuple[Alias, ...]:
    return tuple(map(_alias_from, message.aliases))


def _alias_message(alias: Alias) -> pb.Alias:
    return pb.Alias(name=alias.name, collection=alias.collection)


def _alias_from(message: pb.Alias) -> Alias:
    return Alias(message.name, message.collection)


def documents_response(listing: Listing[DocumentInfo]) -> pb.ListDocumentsResponse:
    return pb.ListDocumentsResponse(
        documents=map(document_info_message, listing.items),
        next_page_token=listing.next_page_token,
    )


def documents_from(message: pb.ListDocumentsResponse) -> Listing[DocumentInfo]:
    return Listing(tuple(map(document_info_from, message.documents)), message.next_page_token)


def metadata_change_from(request: pb.UpdateMetadataRequest) -> MetadataChange:
    bounded(request.remove_keys, MAX_METADATA_VALUES, "remove_keys")
    return MetadataChange(
        metadata=metadata_from(request.metadata),
        remove_keys=tuple(request.remove_keys),
        replace=request.replace,
        source=request.source if request.HasField("source") else None,
        expected_sequence=request.expected_sequence,
    )


def metadata_request(
    tenant_id: str, collection: str, document_id: str, change: MetadataChange
) -> pb.UpdateMetadataRequest:
    return built(
        pb.UpdateMetadataRequest,
        tenant_id=tenant_id,
        collection=collection,
        document_id=document_id,
        metadata=struct_message(change.metadata),
        remove_keys=change.remove_keys,
        replace=change.replace,
        source=change.source,
        expected_sequence=change.expected_sequence,
    )


def metadata_update_response(updated: MetadataUpdate) -> pb.UpdateMetadataResponse:
    return pb.UpdateMetadataResponse(
        document=document_info_message(updated.document), outcome=_OUTCOME_NUMBER[updated.outcome]
    )


def metadata_update_from(message: pb.UpdateMetadataResponse) -> MetadataUpdate:
    return MetadataUpdate(document_info_from(message.document), _OUTCOME[message.outcome])


def count_response(count: DocumentCount) -> pb.CountDocumentsResponse:
    return pb.CountDocumentsResponse(
        document_count=count.documents,
        total_document_count=count.total_documents,
        sequence=count.sequence,
    )


def count_from(message: pb.CountDocumentsResponse) -> DocumentCount:
    return DocumentCount(message.document_count, message.total_document_count, message.sequence)


def deletion_from(message: pb.DeleteDocumentsResponse) -> DocumentDeletion:
    return DocumentDeletion(message.deleted_count, message.sequence)


def status_response(index: IndexStatus) -> pb.GetIndexStatusResponse:
    return pb.GetIndexStatusResponse(
        committed_sequence=index.committed_sequence,
        document_count=index.document_count,
        chunk_count=index.chunk_count,
        leaf_count=index.leaf_count,
        token_count=index.token_count,
        text_bytes=index.text_bytes,
        vector_bytes=index.vector_bytes,
        summary_count=index.summary_count,
        unsummarised_documents=index.unsummarised_documents,
        summary_tokens=index.summary_tokens,
        tenant=_usage_message(index.tenant),
        embedded=None if index.embedded is None else _embedded_message(index.embedded),
    )


def status_from(message: pb.GetIndexStatusResponse) -> IndexStatus:
    return IndexStatus(
        committed_sequence=message.committed_sequence,
        document_count=message.document_count,
        chunk_count=message.chunk_count,
        leaf_count=message.leaf_count,
        token_count=message.token_count,
        text_bytes=message.text_bytes,
        vector_bytes=message.vector_bytes,
        summary_count=message.summary_count,
        unsummarised_documents=message.unsummarised_documents,
        summary_tokens=message.summary_tokens,
        tenant=_usage_from(message.tenant),
        embedded=_embedded_from(message.embedded) if message.HasField("embedded") else None,
    )


def _embedded_message(index: EmbeddedIndexStatus) -> pb.EmbeddedIndexStatus:
    return pb.EmbeddedIndexStatus(
        sealed_sequence=index.sealed_sequence,
        tail_leaf_count=index.tail_leaf_count,
        segments=[pb.Segment(**asdict(segment)) for segment in index.segments],
    )


def _embedded_from(message: pb.EmbeddedIndexStatus) -> EmbeddedIndexStatus:
    return EmbeddedIndexStatus(
        sealed_sequence=message.sealed_sequence,
        tail_leaf_count=message.tail_leaf_count,
        segments=tuple(
            Segment(
                segment_id=segment.segment_id,
                leaf_count=segment.leaf_count,
                size_bytes=segment.size_bytes,
                covered_sequence=segment.covered_sequence,
            )
            for segment in message.segments
        ),
    )


def _usage_message(usage: TenantUsage) -> pb.TenantUsage:
    return pb.TenantUsage(
        collections=usage.collections,
        documents=usage.documents,
        stored_bytes=usage.stored_bytes,
        quota=pb.TenantQuota(**asdict(usage.quota)),
    )


def _usage_from(message: pb.TenantUsage) -> TenantUsage:
    bounds = {field.name: value for field, value in message.quota.ListFields()}
    return TenantUsage(
        message.collections, message.documents, message.stored_bytes, Quota(**bounds)
    )


def tenants_response(listing: Listing[Tenant]) -> pb.ListTenantsResponse:
    return pb.ListTenantsResponse(
        tenants=[
            pb.Tenant(
                tenant_id=tenant.tenant_id,
                usage=_usage_message(tenant.usage),
                leaf_count=tenant.leaf_count,
                sequence=tenant.sequence,
            )
            for tenant in listing.items
        ],
        next_page_token=listing.next_page_token,
    )


def tenants_from(message: pb.ListTenantsResponse) -> Listing[Tenant]:
    tenants = (
        Tenant(tenant.tenant_id, _usage_from(tenant.usage), tenant.leaf_count, tenant.sequence)
        for tenant in message.tenants
    )
    return Listing(tuple(tenants), message.next_page_token)


def page_image_response(image: PageImage, sequence: int) -> pb.GetPageImageResponse:
    return pb.GetPageImageResponse(
        png=image.png,
        width_pixels=image.width_pixels,
        height_pixels=image.height_pixels,
        width_points=image.width_points,
        height_points=image.height_points,
        boxes=[pb.PageBox(**box._asdict()) for box in image.boxes],
        sequence=sequence,
        boxes_note=image.boxes_note,
    )


def page_image_from(message: pb.GetPageImageResponse) -> PageImage:
    return PageImage(
        message.png,
        message.width_pixels,
        message.height_pixels,
        message.width_points,
        message.height_points,
        tuple(SpanBox(box.span, box.left, box.top, box.right, box.bottom) for box in message.boxes),
        message.boxes_note,
    )
