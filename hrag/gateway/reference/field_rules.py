"""Says in keywords of JSON Schema what the services demand of the fields of requests.

The services check these rules; a schema only says them before a call. So every number and pattern
is the one in `hrag.values` with which the services check. A length in characters is the limit in
bytes: no shorter text is refused, and the service still refuses a text with too many bytes. Rules
that depend on the mode of a search or on a collection are in the comments alone.
"""

from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf.descriptor import Descriptor

from hrag.text.analysis.analyzer import LANGUAGES
from hrag.v1 import retriever_pb2 as pb
from hrag.values.document_limits import MAX_PAGES
from hrag.values.filters import DOCUMENT_FIELDS, FORMAT_FIELDS, METADATA
from hrag.values.ids import CHUNK_ID_PATTERN, DOCUMENT_ID_PATTERN, NAME_PATTERN
from hrag.values.limits import (
    MAX_BATCH_SEARCHES,
    MAX_CANDIDATES,
    MAX_CHUNK_TOKENS,
    MAX_HISTORY_TURNS,
    MAX_LEVELS,
    MAX_LIMIT,
    MAX_METADATA_VALUES,
    MAX_NEIGHBOUR_BONUS,
    MAX_OVERLAP_RATIO,
    MAX_PAGE_SIZE,
    MAX_PER_DOCUMENT,
    MAX_QUERY_BYTES,
    MAX_SOURCE_BYTES,
    MAX_TITLE_BYTES,
    MAX_TOP_SECTIONS,
    MAX_WINDOW_SENTENCES,
    MIN_CHUNK_TOKENS,
)
from hrag.values.page_images import MAX_DPI, MAX_PAGE_SPANS, MIN_DPI

Rules = dict[str, Any]
CHUNK_ID: Rules = {"pattern": f"^{CHUNK_ID_PATTERN}$"}

_NAME = {"pattern": f"^{NAME_PATTERN}$"}
_OPTIONAL_NAME = {"pattern": f"^({NAME_PATTERN})?$"}
_DOCUMENT_ID = {"pattern": f"^{DOCUMENT_ID_PATTERN}$"}
_PAGE_SIZE = {"maximum": MAX_PAGE_SIZE}
_LEVEL = {"maximum": MAX_LEVELS - 1}
_SHARE = {"minimum": 0, "maximum": 1}
_NOT_BLANK = {"pattern": r"\S"}
_SOME = {"minItems": 1}
_METADATA = METADATA.replace(".", "[.]")
# Every document has a format, so there is no condition that it has one.
_MAY_LACK = [name for name in DOCUMENT_FIELDS if name not in FORMAT_FIELDS]
_BOUNDS = ("atLeast", "above", "atMost", "below")


def _field_rule(names: Iterable[str]) -> Rules:
    """Returns the rule of a field of a document: one of the names, or a key of its metadata."""
    return {"pattern": f"^(({'|'.join(names)})$|{_METADATA})"}


def _up_to(limit: int) -> Rules:
    return {"minimum": 1, "maximum": limit}


# The rules of a field with this name in every request that has one.
_OF_EVERY_REQUEST: dict[str, Rules] = {
    "tenant_id": _NAME,
    "collection": _OPTIONAL_NAME,
    "name": _NAME,
    "alias": _NAME,
    "document_id": _DOCUMENT_ID,
    "chunk_id": CHUNK_ID,
    "page_size": _PAGE_SIZE,
}
# The rules of other fields, and of fields whose rule differs from that of their name.
_OF_FIELD: dict[str, Rules] = {
    "SetAliasRequest.collection": _NAME,
    # The analyzer of a collection that exists also has a version.
    "CreateCollectionRequest.settings": {"properties": {"analyzer": {"enum": list(LANGUAGES)}}},
    "CollectionSettings.level_sizes": {
        "maxItems": MAX_LEVELS,
        "items": {"minimum": MIN_CHUNK_TOKENS, "maximum": MAX_CHUNK_TOKENS},
    },
    "CollectionSettings.overlap_ratio": {"minimum": 0, "maximum": MAX_OVERLAP_RATIO},
    "CollectionSettings.embedding_level": _LEVEL,
    "CollectionSettings.return_level": _LEVEL,
    "Document.document_id": {"pattern": f"^({DOCUMENT_ID_PATTERN})?$"},
    "Document.title": {"maxLength": MAX_TITLE_BYTES},
    "Document.source": {"maxLength": MAX_SOURCE_BYTES},
    "Document.metadata": {"maxProperties": MAX_METADATA_VALUES},
    "Pages.pages": {
        "minItems": 1,
        "maxItems": MAX_PAGES,
        "contains": {"required": ["text"], "properties": {"text": _NOT_BLANK}},
    },
    "UpdateMetadataRequest.metadata": {"maxProperties": MAX_METADATA_VALUES},
    "UpdateMetadataRequest.remove_keys": {"maxItems": MAX_METADATA_VALUES},
    "UpdateMetadataRequest.source": {"maxLength": MAX_SOURCE_BYTES},
    "SearchRequest.text": {"maxLength": MAX_QUERY_BYTES, "pattern": r"^$|\S"},
    "SearchRequest.limit": _up_to(MAX_LIMIT),
    "SearchRequest.candidates": _up_to(MAX_CANDIDATES),
    "SearchRequest.return_level": _LEVEL,
    "SearchRequest.merge_ratio": {"minimum": 0, "exclusiveMinimum": 0, "maximum": 1},
    "SearchRequest.window_sentences": {"minimum": 0, "maximum": MAX_WINDOW_SENTENCES},
    "SearchRequest.top_sections": _up_to(MAX_TOP_SECTIONS),
    "SearchRequest.lexical_weight": _SHARE,
    "SearchRequest.neighbour_bonus": {"minimum": 0, "maximum": MAX_NEIGHBOUR_BONUS},
    "SearchRequest.max_per_document": {"maximum": MAX_PER_DOCUMENT},
    "BatchSearchRequest.searches": {"minItems": 1, "maxItems": MAX_BATCH_SEARCHES},
    "AnswerRequest.question": {"maxLength": MAX_QUERY_BYTES},
    "AnswerRequest.max_tokens": {"minimum": 1},
    "AnswerRequest.history": {"maxItems": MAX_HISTORY_TURNS},
    "ConversationTurn.role": {"not": {"const": "TURN_ROLE_UNSPECIFIED"}},
    "ConversationTurn.text": _NOT_BLANK,
    "GetHierarchyRequest.depth": {"maximum": MAX_LEVELS},
    "GetPageImageRequest.page": {"minimum": 1},
    "GetPageImageRequest.dpi": {
        "maximum": MAX_DPI,
        "if": {"minimum": 1},
        "then": {"minimum": MIN_DPI},
    },
    "GetPageImageRequest.spans": {"maxItems": MAX_PAGE_SPANS},
    "Vector.values": {**_SOME, "contains": {"not": {"const": 0}}},
    "FilterList.filters": _SOME,
    "FieldMatch.field": _field_rule(DOCUMENT_FIELDS),
    "FieldMatch.values": _SOME,
    "FieldRange.field": {"pattern": f"^{_METADATA}"},
    "FieldExists.field": _field_rule(_MAY_LACK),
}
# The fields that every request of this kind must have, beside those in _ALWAYS.
_REQUIRED: dict[str, tuple[str, ...]] = {
    "SetAliasRequest": ("collection",),
    "IngestDocumentRequest": ("document",),
    "IngestDocumentsRequest": ("document",),
    "DeleteDocumentsRequest": ("filter",),
    "BatchSearchRequest": ("searches",),
    "AnswerRequest": ("search",),
    "GetPageImageRequest": ("page",),
    "ConversationTurn": ("role", "text"),
    "Vector": ("values",),
    "Pages": ("pages",),
    "FilterList": ("filters",),
    "FieldMatch": ("field", "values"),
    "FieldRange": ("field",),
    "FieldExists": ("field",),
}
_ALWAYS = ("tenant_id", "name", "alias", "document_id", "chunk_id")


def _without(*names: str) -> Rules:
    return {"not": {"anyOf": [{"required": [name]} for name in names]}}


def _has(name: str, schema: Rules) -> Rules:
    """Returns a schema: an object has a field, and its value has a schema."""
    return {"required": [name], "properties": {name: schema}}


def _json_name(name: str) -> str:
    return str(pb.SearchRequest.DESCRIPTOR.fields_by_name[name].json_name)


def search_rules(
    names: Callable[[str], str] = _json_name, mode: Callable[[str], str] = "SEARCH_MODE_{}".format
) -> Rules:
    """Returns the rules about several fields of a search.

    `names` returns the name of a field in the JSON of the search, and `mode` that of a mode. The
    rule of `keep_overlap` is in its comment alone: with one more condition, the number of cases is
    more than generators of requests can handle.
    """

    def in_mode(name: str) -> Rules:
        return _has(names("mode"), {"const": mode(name)})

    def retrieved(*retrievals: str) -> Rules:
        values = [f"RETRIEVAL_{retrieval}" for retrieval in ("UNSPECIFIED", *retrievals)]
        return {"properties": {names("retrieval"): {"enum": values}}}

    def unset_or(name: str, rule: Rules) -> Rules:
        """An enum with the value UNSPECIFIED is not set."""
        return {"anyOf": [{"properties": {names(name): {"pattern": "_UNSPECIFIED$"}}}, rule]}

    text = _has(names("text"), {"minLength": 1})
    hybrid = {"allOf": [text, retrieved("HYBRID")]}
    return {
        "if": {"not": {"required": [names("vector")]}},
        "then": _has(names("text"), _NOT_BLANK),
        "dependentSchemas": {
            names("retrieval"): {"anyOf": [text, retrieved("DENSE")]},
            names("fusion"): unset_or("fusion", hybrid),
            names("lexical_weight"): hybrid,
            names("merge_ratio"): in_mode("AUTO_MERGE"),
            names("window_sentences"): in_mode("SENTENCE_WINDOW"),
            names("top_sections"): in_mode("SUMMARY_FIRST"),
            names("summary_scope"): unset_or("summary_scope", in_mode("SUMMARY_FIRST")),
        },
    }


# Rules about several fields. Their conditions are in `if`, `not` and `dependentSchemas`, which
# generators of clients ignore; from `anyOf` beside properties they would make types.
_TOGETHER: dict[str, Rules] = {
    "Document": {
        "if": {"required": ["text"]},
        "then": {**_without("content", "pages"), "properties": {"text": _NOT_BLANK}},
        "else": {
            "if": {"required": ["content"]},
            "then": {**_without("pages"), "properties": {"content": {"pattern": "^[^=]"}}},
            "else": {"required": ["pages"]},
        },
    },
    "SearchRequest": search_rules(),
    "AnswerRequest": {
        "if": {"properties": {"search": _has("text", {"minLength": 1})}},
        "else": _has("question", _NOT_BLANK),
    },
    # Fields that are not in the metadata are texts.
    "FieldMatch": {
        "if": {"properties": {"field": {"pattern": f"^{_METADATA}"}}},
        "else": {"properties": {"values": {"items": {"required": ["text"]}}}},
    },
    "UpdateMetadataRequest": {
        "if": {
            "not": {
                "anyOf": [
                    {"required": ["metadata"], "properties": {"metadata": {"minProperties": 1}}},
                    {"required": ["removeKeys"], "properties": {"removeKeys": _SOME}},
                    {"required": ["replace"], "properties": {"replace": {"const": True}}},
                    {"required": ["source"]},
                ]
            }
        },
        "then": {"required": ["metadata"], "properties": {"metadata": {"minProperties": 1}}},
        "not": {"allOf": [_has("replace", {"const": True}), _has("removeKeys", _SOME)]},
    },
    "FieldRange": {
        "minProperties": 2,  # The field and a bound.
        "not": {
            "anyOf": [{"required": ["atLeast", "above"]}, {"required": ["atMost", "below"]}],
        },
        # If one bound is a number, all are.
        "if": {"anyOf": [_has(bound, {"required": ["number"]}) for bound in _BOUNDS]},
        "then": {"properties": {bound: {"required": ["number"]} for bound in _BOUNDS}},
    },
}


def field_rules(field: Any) -> Rules:
    """Returns the keywords of a request's field, a FieldDescriptor; empty if there is no rule."""
    message = field.containing_type.name
    if rules := _OF_FIELD.get(f"{message}.{field.name}"):
        return rules
    return _OF_EVERY_REQUEST.get(field.name, {}) if message.endswith("Request") else {}


def message_rules(message: Descriptor) -> Rules:
    """Returns the keywords of a message of requests: required fields, and rules about several."""
    always = _ALWAYS if message.name.endswith("Request") else ()
    required = [
        field.json_name
        for field in message.fields
        if field.name in (*always, *_REQUIRED.get(message.name, ()))
    ]
    rules = {"additionalProperties": False, **_TOGETHER.get(message.name, {})}
    if _is_choice(message):
        rules |= {"minProperties": 1, "maxProperties": 1}
    return {**rules, "required": required} if required else rules


def _is_choice(message: Descriptor) -> bool:
    """Returns True if a message has exactly one of its fields, by its definition."""
    return len(message.oneofs) == 1 and len(message.oneofs[0].fields) == len(message.fields) > 1
