"""A search whose tenant and options are fixed, so that a call needs only the query.

The program that creates a retriever determines which tenant and collection the retriever searches,
and with which options. A call can replace the limit. A call can also add a filter: then a document
must pass both the filter of the call and the fixed filter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hrag.client import Client, any_loop, calls
from hrag.client.tools import query_text
from hrag.values.filters import AllOf, Filter, check_filter
from hrag.values.ids import check_collection_name, check_tenant_id
from hrag.values.search import Passage, SearchQuery


@dataclass(frozen=True, slots=True)
class BoundSearch:
    """Searches one tenant's collection with fixed options.

    `options` are keyword arguments of `Client.search`. They must include `collection`, `limit` and
    `filter`. The constructor raises InvalidArgument, which names the field, if a value is not
    allowed in any search. It raises TypeError if `Client.search` does not have an option.
    """

    tenant_id: str
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        calls.search(SearchQuery(self.tenant_id, "", **self.options))
        check_tenant_id(self.tenant_id)
        check_collection_name(self.options["collection"])
        if self.options["filter"] is not None:
            check_filter(self.options["filter"])

    def passages(
        self, client: Client, query: str, limit: int | None = None, filter: Filter | None = None
    ) -> tuple[Passage, ...]:
        """Returns the passages that best answer `query`, best first; blocks the calling thread.

        If `limit` is given, it replaces the fixed limit. If `filter` is given, a document must pass
        it and the fixed filter. Raises the errors of `Client.search`.
        """
        options = self._narrow_options(limit, filter)
        return client.search(self.tenant_id, query_text(query), **options).passages

    async def awaited_passages(
        self, client: Client, query: str, limit: int | None = None, filter: Filter | None = None
    ) -> tuple[Passage, ...]:
        """Returns the same passages as `passages`, but does not block a thread while it waits.

        May be called in any event loop.
        """
        options = self._narrow_options(limit, filter)
        search_query = SearchQuery(self.tenant_id, query_text(query), **options)
        return (await any_loop.search(client, search_query)).passages

    def _narrow_options(self, limit: int | None, filter: Filter | None) -> dict[str, Any]:
        fixed = self.options["filter"]
        filters = tuple(condition for condition in (fixed, filter) if condition is not None)
        return {
            **self.options,
            "limit": self.options["limit"] if limit is None else limit,
            "filter": AllOf(filters) if len(filters) > 1 else next(iter(filters), None),
        }
