"""hrag as a retriever of LlamaIndex: `pip install 'hrag[llama-index]'`.

    with Client() as client:
        retriever = HragRetriever(client, "acme")
        for found in retriever.retrieve("what do dogs do?"):
            print(found.score, found.metadata["heading"], found.text)

Any thread and any event loop may use it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.schema import (
        NodeRelationship,
        NodeWithScore,
        ObjectType,
        QueryBundle,
        RelatedNodeInfo,
        TextNode,
    )
    from llama_index.core.vector_stores.types import (
        FilterCondition,
        FilterOperator,
        MetadataFilter,
        MetadataFilters,
    )
except ImportError as error:
    from hrag.integrations import missing_package

    raise missing_package(error, "llama-index") from None

from hrag.client import Client
from hrag.integrations import native_filters
from hrag.integrations.bound_search import BoundSearch
from hrag.integrations.citation import citation
from hrag.values.errors import TooLarge
from hrag.values.filters import MAX_FILTER_DEPTH, AllOf, AnyOf, Filter, NoneOf
from hrag.values.limits import DEFAULT_COLLECTION
from hrag.values.search import Passage, SearchMode

_CITED_BY = "heading"

_LISTS: dict[FilterCondition | None, Callable[[tuple[Filter, ...]], Filter]] = {
    FilterCondition.AND: AllOf,
    FilterCondition.OR: AnyOf,
    FilterCondition.NOT: NoneOf,  # LlamaIndex: none of them matches.
    None: AllOf,
}
# In hrag a list in the metadata has each of its elements as a value.
_OPERATORS = {
    FilterOperator.NIN: "not in",
    FilterOperator.ANY: "in",
    FilterOperator.ALL: "all",
    FilterOperator.CONTAINS: "==",
}


class HragRetriever(BaseRetriever):
    """Retrieves passages of one tenant's collection, best first.

    `client` stays its owner's, who closes it. `filter` is hrag's or LlamaIndex's own; the other
    arguments are those of `Client.search`, `search_options` those without a name of their own.
    The search is made from the query's text; an embedding in a QueryBundle is another model's
    and not used.

    A node's id is the chunk's, its SOURCE the document, its metadata as
    `hrag.integrations.citation` has it; of that, a model sees the heading alone. Making one
    raises InvalidArgument or TypeError for what no search accepts; retrieving raises what
    `Client.search` raises.
    """

    def __init__(
        self,
        client: Client,
        tenant_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        mode: SearchMode = SearchMode.CONTEXT,
        limit: int | None = None,
        token_budget: int = 0,
        min_score: float | None = None,
        filter: Filter | MetadataFilters | None = None,
        search_options: Mapping[str, Any] | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        options = dict(
            collection=collection,
            mode=mode,
            limit=limit,
            token_budget=token_budget,
            min_score=min_score,
            filter=filter_of(filter) if isinstance(filter, MetadataFilters) else filter,
            **(search_options or {}),
        )
        self._client = client
        self._search = BoundSearch(tenant_id, options)
        super().__init__(callback_manager=callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes(self._search.passages(self._client, query_bundle.query_str))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        query = query_bundle.query_str
        return _nodes(await self._search.awaited_passages(self._client, query))


def _nodes(passages: Iterable[Passage]) -> list[NodeWithScore]:
    return [NodeWithScore(node=_node(passage), score=passage.score) for passage in passages]


def _node(passage: Passage) -> TextNode:
    chunk, metadata = passage.chunk, citation(passage)
    source = RelatedNodeInfo(node_id=chunk.document_id, node_type=ObjectType.DOCUMENT)
    unseen = [key for key in metadata if key != _CITED_BY]
    return TextNode(
        id_=chunk.chunk_id,
        text=chunk.content,
        metadata=metadata,
        excluded_llm_metadata_keys=unseen,
        excluded_embed_metadata_keys=unseen,
        relationships={NodeRelationship.SOURCE: source},
        start_char_idx=chunk.span.char_start,
        end_char_idx=chunk.span.char_end,
    )


def filter_of(given: MetadataFilters, path: str = "filter", depth: int = 1) -> Filter:
    """Returns LlamaIndex's filter as one of hrag's.

    Raises InvalidArgument for what hrag cannot express, such as `text_match`, and TooLarge for
    nesting past hrag's limit.
    """
    if depth > MAX_FILTER_DEPTH:
        raise TooLarge(f"filter is nested over {MAX_FILTER_DEPTH} deep", field="filter")
    inner = (
        filter_of(each, f"{path}.filters[{number}]", depth + 1)
        if isinstance(each, MetadataFilters)
        else _condition(each, f"{path}.filters[{number}]")
        for number, each in enumerate(given.filters)
    )
    return _LISTS[given.condition](tuple(inner))


def _condition(given: MetadataFilter, path: str) -> Filter:
    field = native_filters.field_of(given.key, f"{path}.key")
    if given.operator is FilterOperator.IS_EMPTY:
        return native_filters.condition(field, "==", None, path)
    operator = _OPERATORS.get(given.operator, given.operator.value)
    return native_filters.condition(field, operator, given.value, path)
