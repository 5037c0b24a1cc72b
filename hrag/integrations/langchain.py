"""hrag as a retriever of LangChain: the extra `langchain`.

    with Client() as client:
        retriever = HragRetriever(client=client, tenant_id="acme")
        for document in retriever.invoke("what do dogs do?"):
            print(document.metadata["heading"], document.page_content)

The retriever is a Runnable of LangChain: `ainvoke`, `batch`, chains and `configurable_fields` work,
in every thread and every event loop.
"""

from collections.abc import Iterable
from typing import Any

try:
    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
    )
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
except ImportError as error:
    from hrag.integrations import missing_package

    raise missing_package(error, "langchain") from None
from pydantic import ConfigDict, Field, SkipValidation

from hrag.client import Client
from hrag.integrations.bound_search import BoundSearch
from hrag.integrations.citation import citation
from hrag.values.filters import Filter
from hrag.values.limits import DEFAULT_COLLECTION
from hrag.values.search import Passage, SearchMode


class HragRetriever(BaseRetriever):
    """Retrieves passages of one tenant's collection, best first.

    The retriever does not close `client`; the program that created the client must close it. The
    other fields are arguments of `Client.search`; `search_options` contains the arguments of
    `Client.search` that are not fields of the retriever. `invoke` and `ainvoke` accept `limit`,
    which replaces the field `limit`, and `filter`, which is applied in addition to the field
    `filter`.

    The `id` of a returned document is the id of its chunk, and its `metadata` is the dictionary
    that `hrag.integrations.citation` returns. Creating a retriever raises InvalidArgument,
    TypeError or pydantic's ValidationError for arguments that no search accepts. Retrieving
    raises the errors of `Client.search`.
    """

    # Without this rule, a misspelt field, or `k` of other retrievers, would be ignored.
    model_config = ConfigDict(extra="forbid")

    client: SkipValidation[Client] = Field(exclude=True, repr=False)
    tenant_id: str
    collection: str = DEFAULT_COLLECTION
    mode: SearchMode = SearchMode.CONTEXT
    limit: int | None = None
    token_budget: int = 0
    min_score: float | None = None
    filter: SkipValidation[Filter | None] = None
    search_options: dict[str, Any] = Field(default_factory=dict)

    def model_post_init(self, context: Any, /) -> None:
        """Raises InvalidArgument if the value of a field is not allowed in any search.

        Raises TypeError if `Client.search` does not have one of the `search_options`. Pydantic
        calls this method after it has set the fields.
        """
        super().model_post_init(context)
        self._search()

    def _search(self) -> BoundSearch:
        """Returns a search with the current values of the fields.

        Each call creates a new search, because a program may assign fields at any time.
        """
        options = dict(
            collection=self.collection,
            mode=self.mode,
            limit=self.limit,
            token_budget=self.token_budget,
            min_score=self.min_score,
            filter=self.filter,
            **self.search_options,
        )
        return BoundSearch(self.tenant_id, options)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002
        limit: int | None = None,
        filter: Filter | None = None,
    ) -> list[Document]:
        return _documents(self._search().passages(self.client, query, limit, filter))

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,  # noqa: ARG002
        limit: int | None = None,
        filter: Filter | None = None,
    ) -> list[Document]:
        search = self._search()
        return _documents(await search.awaited_passages(self.client, query, limit, filter))


def _documents(passages: Iterable[Passage]) -> list[Document]:
    return [
        Document(
            id=passage.chunk.chunk_id,
            page_content=passage.chunk.content,
            metadata=citation(passage),
        )
        for passage in passages
    ]
