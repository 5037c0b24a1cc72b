"""hrag as a retriever of LlamaIndex: the extra `llama-index`.

    with Client() as client:
        retriever = HragRetriever(client, "acme")
        for node in retriever.retrieve("what do dogs do?"):
            print(node.score, node.metadata["heading"], node.text)

Every thread and every event loop may use the retriever.
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

# The key of the metadata whose value LlamaIndex shows to a model, so that the model can cite the
# passage. The other metadata is not shown.
_CITED_BY = "heading"

_LISTS: dict[FilterCondition | None, Callable[[tuple[Filter, ...]], Filter]] = {
    FilterCondition.AND: AllOf,
    FilterCondition.OR: AnyOf,
    FilterCondition.NOT: NoneOf,  # In LlamaIndex, NOT means that none of the filters matches.
    None: AllOf,
}
# The operator of hrag for each operator of LlamaIndex that has another name in hrag. If a metadata
# value is a list, hrag's "==" compares each element, so "==" means the same as CONTAINS.
_OPERATORS = {
    FilterOperator.NIN: "not in",
    FilterOperator.ANY: "in",
    FilterOperator.ALL: "all",
    FilterOperator.CONTAINS: "==",
}


class HragRetriever(BaseRetriever):
    """Retrieves passages of one tenant's collection, best first.

    The retriever does not close `client`; the program that created the client must close it.
    `filter` is a filter of hrag or of LlamaIndex. The other arguments are arguments of
    `Client.search`; `search_options` contains the arguments of `Client.search` that are not
    parameters of the retriever. The search uses the query's text. It ignores an embedding in the
    QueryBundle, because this embedding may come from a different model than the vectors of the
    collection.

    Each passage becomes a node. The id of the node is the id of its chunk, and its related node
    SOURCE is the document. The node's metadata is the dictionary that `hrag.integrations.citation`
    returns; a model sees only the heading in it. Creating a retriever raises InvalidArgument or
    TypeError for arguments that no search accepts. Retrieving raises the errors of `Client.search`.
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
    hidden_keys = [key for key in metadata if key != _CITED_BY]
    return TextNode(
        id_=chunk.chunk_id,
        text=chunk.content,
        metadata=metadata,
        excluded_llm_metadata_keys=hidden_keys,
        excluded_embed_metadata_keys=hidden_keys,
        relationships={NodeRelationship.SOURCE: source},
        start_char_idx=chunk.span.char_start,
        end_char_idx=chunk.span.char_end,
    )


def filter_of(filters: MetadataFilters, path: str = "filter", depth: int = 1) -> Filter:
    """Returns the filter of hrag that means the same as a filter of LlamaIndex.

    `path` names the filter in error messages. Raises InvalidArgument for a filter that hrag cannot
    express, for example `text_match`. Raises TooLarge for a filter that is nested more than
    MAX_FILTER_DEPTH levels deep.
    """
    if depth > MAX_FILTER_DEPTH:
        raise TooLarge(
            f"filter is nested over {MAX_FILTER_DEPTH} deep; at most {MAX_FILTER_DEPTH} levels are "
            "allowed",
            field="filter",
        )
    inner = (
        filter_of(filter, f"{path}.filters[{number}]", depth + 1)
        if isinstance(filter, MetadataFilters)
        else _condition(filter, f"{path}.filters[{number}]")
        for number, filter in enumerate(filters.filters)
    )
    return _LISTS[filters.condition](tuple(inner))


def _condition(filter: MetadataFilter, path: str) -> Filter:
    field = native_filters.field_of(filter.key, f"{path}.key")
    if filter.operator is FilterOperator.IS_EMPTY:
        return native_filters.condition(field, "==", None, path)
    operator = _OPERATORS.get(filter.operator, filter.operator.value)
    return native_filters.condition(field, operator, filter.value, path)
