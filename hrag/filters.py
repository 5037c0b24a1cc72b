"""The filters of the SDK: conditions on documents.

The module exports the public names of `hrag.values.filters`.
"""

from hrag.values.filters import (
    DOCUMENT_ID,
    MAX_FILTER_CONDITIONS,
    MAX_FILTER_DEPTH,
    MAX_FILTER_RANGES,
    MAX_FILTER_TERMS,
    METADATA,
    SOURCE,
    TITLE,
    AllOf,
    AnyOf,
    Bound,
    Exists,
    Filter,
    FilterValue,
    Match,
    NoneOf,
    Range,
    check_filter,
    filter_digest,
    in_utc,
    timestamp_of,
)

__all__ = [
    "DOCUMENT_ID",
    "MAX_FILTER_CONDITIONS",
    "MAX_FILTER_DEPTH",
    "MAX_FILTER_RANGES",
    "MAX_FILTER_TERMS",
    "METADATA",
    "SOURCE",
    "TITLE",
    "AllOf",
    "AnyOf",
    "Bound",
    "Exists",
    "Filter",
    "FilterValue",
    "Match",
    "NoneOf",
    "Range",
    "check_filter",
    "filter_digest",
    "in_utc",
    "timestamp_of",
]
