"""Converts values to and from the messages of types.proto."""

import math
from collections.abc import Mapping, Sized
from datetime import date, time
from typing import Any, TypeVar

from google.protobuf import struct_pb2
from google.protobuf.message import Message

from hrag.v1 import types_pb2 as pb
from hrag.values.chunks import Chunk, PageStart, Span
from hrag.values.collections import (
    Collection,
    CollectionSettings,
    SettingsRequest,
    SummaryUnit,
    TreeSettings,
)
from hrag.values.document_limits import MAX_PAGES
from hrag.values.documents import Document, DocumentInfo, Page
from hrag.values.errors import HragError, InvalidArgument, TooLarge
from hrag.values.ids import quoted
from hrag.values.limits import DEFAULT_COLLECTION, MAX_LEVELS, MAX_METADATA_BYTES
from hrag.values.read_report import PageUnit
from hrag.wire import status_codes

_EXACT_INT = 2**53  # Numbers in a Struct are doubles: up to 2**53 every integer is exact.
# The limit of nesting in metadata. Protobuf's parsers refuse a message that is nested more than 100
# levels deep, and each nested JSON object needs three of these levels.
_MAX_DEPTH = 30
# A Struct message has at most six times as many bytes as the same values in JSON. The worst case is
# a number with one digit in a list. A message needs eleven bytes for this number; JSON needs two,
# for the digit and a comma.
_BYTES_PER_JSON = 6
_PAGE_UNIT_NUMBERS = {
    PageUnit.PAGE: pb.PAGE_UNIT_PAGE,
    PageUnit.ROW: pb.PAGE_UNIT_ROW,
    PageUnit.SECOND: pb.PAGE_UNIT_SECOND,
}
_PAGE_UNITS: Mapping[int, PageUnit] = {number: unit for unit, number in _PAGE_UNIT_NUMBERS.items()}
# Protobuf raises these errors for a value that does not fit the field of a message.
_UNFIT = (TypeError, ValueError, OverflowError)

Built = TypeVar("Built", bound=Message)


def bounded(values: Sized, limit: int, field: str) -> None:
    """Raises TooLarge if a field has more than `limit` entries.

    Must be called before the entries are decoded, because a field of a request may have tens of
    millions of entries.
    """
    if len(values) > limit:
        raise TooLarge(
            f"{field} has {len(values)} entries; at most {limit} are allowed", field=field
        )


def collection_or_default(name: str) -> str:
    """Returns the name of a collection; an empty name in a request means `default`."""
    return name or DEFAULT_COLLECTION


def built(message_type: type[Built], **fields: Any) -> Built:
    """Returns a message of `message_type` with these fields.

    Raises InvalidArgument, which names the field, for a value that does not fit the field.
    """
    try:
        return message_type(**fields)
    except _UNFIT:
        for name, value in fields.items():
            _check_fits(message_type, name, value)
        raise


def _check_fits(message_type: type[Message], name: str, value: Any) -> None:
    try:
        message_type(**{name: value})
    except _UNFIT as error:
        problem = "text must be valid Unicode" if isinstance(error, UnicodeError) else error
        raise InvalidArgument(f"{name} is {quoted(str(value))}: {problem}", field=name) from None


# The following functions convert metadata to and from protobuf messages.


def struct_message(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """Returns `values` as a Struct; raises InvalidArgument for values that are not JSON."""
    struct = struct_pb2.Struct()
    for key, value in values.items():
        _set_value(struct.fields[_key(key)], value, 1, key)
    return struct


def _set_value(target: struct_pb2.Value, value: Any, depth: int, key: str) -> None:
    """Writes `value` to `target`. `key` is the top-level key of the metadata, for errors."""
    _check_depth(depth)
    match value:
        case None:
            target.null_value = struct_pb2.NULL_VALUE
        case bool():
            target.bool_value = value
        case int() | float():
            target.number_value = _number(value)
        case str():
            target.string_value = _text(value)
        case Mapping():
            target.struct_value.SetInParent()
            for inner_key, inner in value.items():
                _set_value(target.struct_value.fields[_key(inner_key)], inner, depth + 1, key)
        case list() | tuple():
            target.list_value.SetInParent()
            for inner in value:
                _set_value(target.list_value.values.add(), inner, depth + 1, key)
        case _:
            kind = type(value).__name__
            is_moment = isinstance(value, date | time)
            remedy = "; write it as text, with isoformat()" if is_moment else ""
            raise InvalidArgument(
                f"metadata has a value of type {kind} in the key {quoted(key)}; only JSON values "
                f"are allowed{remedy}",
                field="metadata",
            )


def _check_depth(depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise InvalidArgument(
            f"metadata is nested over {_MAX_DEPTH} deep; at most {_MAX_DEPTH} levels are allowed",
            field="metadata",
        )


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise InvalidArgument(f"metadata has the key {key!r}; keys must be text", field="metadata")
    return _text(key)


def _text(value: str) -> str:
    return checked_text(value, "metadata")


def _number(value: float) -> float:
    if isinstance(value, int):
        if abs(value) > _EXACT_INT:
            raise InvalidArgument(
                "metadata contains a whole number beyond 2**53, which would lose digits; "
                "send it as text",
                field="metadata",
            )
    elif not math.isfinite(value):
        raise InvalidArgument(
            f"metadata contains {value}; numbers must be finite", field="metadata"
        )
    return value


def struct_from(struct: struct_pb2.Struct) -> dict[str, Any]:
    """Returns the dict that a Struct represents; whole numbers up to 2**53 become int.

    Raises InvalidArgument for NaN, for infinity and for nesting that is deeper than _MAX_DEPTH.
    """
    return _object_from(struct, 1)


def _object_from(struct: struct_pb2.Struct, depth: int) -> dict[str, Any]:
    return {key: _value_from(value, depth) for key, value in struct.fields.items()}


def _value_from(value: struct_pb2.Value, depth: int) -> Any:
    _check_depth(depth)
    match value.WhichOneof("kind"):
        case "number_value":
            return _number_from(value.number_value)
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return _object_from(value.struct_value, depth + 1)
        case "list_value":
            return [_value_from(inner, depth + 1) for inner in value.list_value.values]
        case _:
            return None


def _number_from(number: float) -> int | float:
    if not math.isfinite(number):
        raise InvalidArgument(
            f"metadata contains {number}; numbers must be finite", field="metadata"
        )
    whole = number.is_integer() and abs(number) <= _EXACT_INT
    return int(number) if whole else number


def checked_text(value: str, field: str) -> str:
    """Returns `value`; raises InvalidArgument if it contains a lone surrogate."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                f"{field} has a lone surrogate at offset {error.start}; text must be valid Unicode",
                field=field,
            ) from None
    return value


# The following functions convert collections and their settings to and from protobuf messages.

_UNIT_NUMBER = {
    SummaryUnit.NONE: pb.SUMMARY_UNIT_NONE,
    SummaryUnit.CHUNK: pb.SUMMARY_UNIT_CHUNK,
    SummaryUnit.PAGE: pb.SUMMARY_UNIT_PAGE,
    SummaryUnit.SECTION: pb.SUMMARY_UNIT_SECTION,
}
_UNIT: dict[int, SummaryUnit] = {number: unit for unit, number in _UNIT_NUMBER.items()}


def settings_request_from(message: pb.CollectionSettings) -> SettingsRequest:
    def optional(name: str) -> Any:
        return getattr(message, name) if message.HasField(name) else None

    bounded(message.level_sizes, MAX_LEVELS, "level_sizes")
    return SettingsRequest(
        level_sizes=tuple(message.level_sizes) or None,
        overlap_ratio=optional("overlap_ratio"),
        embedding_level=optional("embedding_level"),
        return_level=optional("return_level"),
        summaries=_unit_from(message.summaries),
        embedder=message.embedder or None,
        analyzer=optional("analyzer"),
        index_headings=optional("index_headings"),
        keep_originals=optional("keep_originals"),
    )


def settings_request_message(request: SettingsRequest) -> pb.CollectionSettings:
    return built(
        pb.CollectionSettings,
        level_sizes=request.level_sizes or (),
        overlap_ratio=request.overlap_ratio,
        embedding_level=request.embedding_level,
        return_level=request.return_level,
        summaries=None if request.summaries is None else _UNIT_NUMBER[request.summaries],
        embedder=request.embedder,
        analyzer=request.analyzer,
        index_headings=request.index_headings,
        keep_originals=request.keep_originals,
    )


def _unit_from(number: int) -> SummaryUnit | None:
    if number == pb.SUMMARY_UNIT_UNSPECIFIED:
        return None
    if number not in _UNIT:
        raise InvalidArgument(f"summaries is {number}, which is no known value", field="summaries")
    return _UNIT[number]


def collection_message(collection: Collection) -> pb.Collection:
    settings = collection.settings
    return pb.Collection(
        tenant_id=collection.tenant_id,
        name=collection.name,
        settings=pb.CollectionSettings(
            level_sizes=settings.tree.level_sizes,
            overlap_ratio=settings.tree.overlap_ratio,
            embedding_level=settings.tree.embedding_level,
            return_level=settings.return_level,
            embedder=settings.embedder,
            dimension=settings.dimension,
            summaries=_UNIT_NUMBER[settings.summaries],
            analyzer=settings.analyzer,
            index_headings=settings.index_headings,
            keep_originals=settings.keep_originals,
        ),
        document_count=collection.document_count,
    )


def collection_from(message: pb.Collection) -> Collection:
    settings = message.settings
    tree = TreeSettings(
        tuple(settings.level_sizes), settings.overlap_ratio, settings.embedding_level
    )
    return_level = settings.return_level if settings.HasField("return_level") else None
    return Collection(
        message.tenant_id,
        message.name,
        CollectionSettings(
            tree,
            settings.embedder,
            settings.dimension,
            return_level,
            _UNIT.get(settings.summaries, SummaryUnit.NONE),
            settings.analyzer,
            settings.index_headings,
            settings.keep_originals,
        ),
        message.document_count,
    )


# The following functions convert documents to and from protobuf messages.


def document_from(message: pb.Document) -> Document:
    return Document(
        body=_body_from(message),
        document_id=message.document_id,
        title=message.title,
        source=message.source,
        mime_type=message.mime_type,
        metadata=metadata_from(message.metadata),
        encoding=message.encoding,
        keep_boilerplate=message.keep_boilerplate,
    )


def metadata_from(metadata: struct_pb2.Struct) -> dict[str, Any]:
    """Returns the dict that a Struct of metadata represents.

    Raises TooLarge, before the Struct is decoded, if the Struct is so large that the same metadata
    as JSON certainly exceeds MAX_METADATA_BYTES. Raises InvalidArgument if `struct_from` does.
    """
    size = metadata.ByteSize()
    if size > _BYTES_PER_JSON * MAX_METADATA_BYTES:
        raise TooLarge(
            f"metadata has {size} bytes in protobuf; "
            f"at most {MAX_METADATA_BYTES} bytes are allowed as JSON",
            field="metadata",
        )
    return struct_from(metadata)


def _body_from(message: pb.Document) -> str | bytes | tuple[Page, ...]:
    match message.WhichOneof("body"):
        case "text":
            return message.text
        case "content":
            return message.content
        case "pages":
            bounded(message.pages.pages, MAX_PAGES, "pages")
            return tuple(Page(page.text, page.number) for page in message.pages.pages)
        case _:
            raise InvalidArgument(
                "body is missing; a document needs text, content or pages", field="body"
            )


def document_message(document: Document) -> pb.Document:
    message = pb.Document(
        document_id=checked_text(document.document_id, "document_id"),
        title=checked_text(document.title, "title"),
        source=checked_text(document.source, "source"),
        mime_type=checked_text(document.mime_type, "mime_type"),
        metadata=struct_message(document.metadata),
        encoding=checked_text(document.encoding, "encoding"),
        keep_boilerplate=document.keep_boilerplate,
    )
    body = document.body
    if isinstance(body, str):
        message.text = checked_text(body, "text")
    elif isinstance(body, bytes):
        message.content = body
    else:
        message.pages.SetInParent()
        for page in body:
            text = checked_text(page.text, "pages")
            message.pages.pages.append(built(pb.Page, text=text, number=page.number))
    return message


def document_info_message(info: DocumentInfo) -> pb.DocumentInfo:
    return pb.DocumentInfo(
        document_id=info.document_id,
        title=info.title,
        source=info.source,
        mime_type=info.mime_type,
        metadata=struct_message(info.metadata),
        chunks_per_level=info.chunks_per_level,
        token_count=info.token_count,
        text_bytes=info.text_bytes,
        page_count=info.page_count,
        section_count=info.section_count,
        sequence=info.sequence,
        page_unit=page_unit_number(info.page_unit if info.page_count else None),
        recognised_page_count=info.recognised_page_count,
        original_bytes=info.original_bytes,
    )


def document_info_from(message: pb.DocumentInfo) -> DocumentInfo:
    return DocumentInfo(
        document_id=message.document_id,
        title=message.title,
        source=message.source,
        mime_type=message.mime_type,
        metadata=struct_from(message.metadata),
        chunks_per_level=tuple(message.chunks_per_level),
        token_count=message.token_count,
        text_bytes=message.text_bytes,
        page_count=message.page_count,
        section_count=message.section_count,
        sequence=message.sequence,
        page_unit=page_unit_from(message.page_unit),
        recognised_page_count=message.recognised_page_count,
        original_bytes=message.original_bytes,
    )


# The following functions convert chunks and errors to and from protobuf messages.


def page_unit_number(unit: PageUnit | None) -> pb.PageUnit:
    """Returns the number of a unit in messages; None is the unit of a document without pages."""
    return pb.PAGE_UNIT_UNSPECIFIED if unit is None else _PAGE_UNIT_NUMBERS[unit]


def page_unit_from(number: int) -> PageUnit:
    """Returns the unit with this number; PAGE for an unknown number and for "no pages".

    A newer server may send an unknown number. Citations then call its numbers pages.
    """
    return _PAGE_UNITS.get(number, PageUnit.PAGE)


def span_message(span: Span) -> pb.Span:
    return pb.Span(
        byte_start=span.byte_start,
        byte_end=span.byte_end,
        char_start=span.char_start,
        char_end=span.char_end,
    )


def span_from(message: pb.Span) -> Span:
    return Span(message.byte_start, message.byte_end, message.char_start, message.char_end)


def chunk_message(chunk: Chunk) -> pb.Chunk:
    return pb.Chunk(
        chunk_id=chunk.chunk_id,
        document_id=chunk.document_id,
        level=chunk.level,
        index=chunk.index,
        content=chunk.content,
        token_count=chunk.token_count,
        span=span_message(chunk.span),
        section_path=chunk.section_path,
        first_page=chunk.first_page,
        last_page=chunk.last_page,
        page_unit=page_unit_number(chunk.page_unit if chunk.first_page else None),
        recognised_pages=chunk.recognised_pages,
        title=chunk.title,
        source=chunk.source,
        metadata=struct_message(chunk.metadata) if chunk.metadata else None,
        page_starts=[
            pb.PageStart(number=page.number, char_start=page.char_start)
            for page in chunk.page_starts
        ],
    )


def chunk_from(message: pb.Chunk) -> Chunk:
    return Chunk(
        chunk_id=message.chunk_id,
        document_id=message.document_id,
        level=message.level,
        index=message.index,
        content=message.content,
        token_count=message.token_count,
        span=span_from(message.span),
        section_path=tuple(message.section_path),
        first_page=message.first_page,
        last_page=message.last_page,
        page_unit=page_unit_from(message.page_unit),
        recognised_pages=tuple(message.recognised_pages),
        title=message.title,
        source=message.source,
        metadata=struct_from(message.metadata),
        page_starts=tuple(PageStart(page.number, page.char_start) for page in message.page_starts),
    )


def error_message(error: HragError) -> pb.CallError:
    situation = status_codes.situation_of(error)
    return pb.CallError(
        code=situation.code.value[0],
        message=status_codes.message_of(error),
        reason=situation.reason,
        field=error.field,
    )


def error_from(message: pb.CallError) -> HragError:
    return status_codes.from_reason(message.reason, message.code, message.message, message.field)
