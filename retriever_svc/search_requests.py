"""Parses the requests of the method Search, and remembers the options of recent requests.

Many requests of a client differ only in their vectors. So the bytes of a request without its vector
are the key of a cache, and a value of the cache has the options of the query: parsed, converted and
checked. These three steps take several times as long as the look-up. They depend on nothing but the
bytes: the tenant is an option too, and whether a caller may search for it is checked in each call.
Requests with a text are not remembered, because texts seldom repeat.

Long options, for example large filters, are left to the handler of the call. A request is parsed
before its tenant and its rate limits are checked, so parsing must stay cheap: converting the
largest filter takes thirty times as long as parsing it.
"""

from dataclasses import fields
from typing import Any

from hrag.v1 import retriever_pb2 as pb
from hrag.values.errors import HragError
from hrag.values.quick_creation import created
from hrag.values.search import SearchQuery
from hrag.wire.retriever import search_query_from
from hrag_fast import split_vector
from retriever_svc.query_options import check_query

# The cache has at most MAX_OPTIONS entries with keys of at most MAX_OPTION_BYTES bytes each. So it
# takes a few MB at most: the values of a filter take up to 50 times the bytes of the filter.
MAX_OPTIONS = 256
MAX_OPTION_BYTES = 512

# The options that a request does not set are remembered too, with their defaults: Python reads an
# attribute of an instance faster than one of its class.
_NAMES = tuple(field.name for field in fields(SearchQuery))
_FIELDS = pb.SearchRequest.DESCRIPTOR.fields_by_name
_VECTOR = _FIELDS["vector"].number
_TEXT = _FIELDS["text"].number


class CheckedQuery(SearchQuery):
    """A query that `check_query` has accepted."""


class SearchRequests:
    """Parses requests. Safe to call from several threads."""

    def __init__(self) -> None:
        self._options: dict[bytes, dict[str, Any]] = {}

    def __len__(self) -> int:
        """Returns the count of remembered options."""
        return len(self._options)

    def __call__(self, encoded: bytes) -> CheckedQuery | pb.SearchRequest:
        """Returns the query of an encoded SearchRequest.

        Returns the message itself if the query has a text or long options, or if an option is not
        allowed: then the handler of the call converts and checks the message, and raises the error.
        Raises DecodeError if the bytes are no message.
        """
        split = split_vector(encoded, _VECTOR, _TEXT)
        if split is None or len(split[0]) > MAX_OPTION_BYTES:
            return pb.SearchRequest.FromString(encoded)
        key, vector = split
        options = self._options.get(key)
        if options is None:
            message = pb.SearchRequest.FromString(encoded)
            try:
                query = search_query_from(message)
                check_query(query)
            except HragError:
                return message
            options = {name: getattr(query, name) for name in _NAMES}
            self._remember(key, options)
        return created(CheckedQuery, {**options, "query": vector})

    def _remember(self, key: bytes, options: dict[str, Any]) -> None:
        """Adds an entry to the cache. If the cache is full, all earlier entries are dropped."""
        if len(self._options) >= MAX_OPTIONS:
            self._options = {}
        self._options[key] = options | {"query": None}
