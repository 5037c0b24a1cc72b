"""A search whose tenant and options are bound: what remains to say is the query.

Whoever makes a retriever decides whose documents it searches and how. What a call adds can
only narrow that: its filter must hold besides the bound one.
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
    """Searches of one tenant's collection.

    `options` are arguments of `Client.search`; collection, limit and filter are among them.
    Raises InvalidArgument, naming the field, for a value that no search accepts, and TypeError
    for an option that no search has.
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
        """Returns the passages that best answer a text, best first; for threads.

        `limit` replaces the bound one, `filter` must hold besides the bound one. Raises what
        `Client.search` raises.
        """
        options = self._narrowed(limit, filter)
        return client.search(self.tenant_id, query_text(query), **options).passages

    async def awaited_passages(
        self, client: Client, query: str, limit: int | None = None, filter: Filter | None = None
    ) -> tuple[Passage, ...]:
        """As `passages`, for any event loop."""
        options = self._narrowed(limit, filter)
        asked = SearchQuery(self.tenant_id, query_text(query), **options)
        return (await any_loop.search(client, asked)).passages

    def _narrowed(self, limit: int | None, filter: Filter | None) -> dict[str, Any]:
        bound = self.options["filter"]
        both = tuple(each for each in (bound, filter) if each is not None)
        return {
            **self.options,
            "limit": self.options["limit"] if limit is None else limit,
            "filter": AllOf(both) if len(both) > 1 else next(iter(both), None),
        }
