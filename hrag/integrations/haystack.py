"""hrag as a retriever of Haystack: `pip install 'hrag[haystack]'`.

    pipeline = Pipeline()
    pipeline.add_component("retriever", HragRetriever("acme", address="127.0.0.1:50052"))
    pipeline.run({"retriever": {"query": "what do dogs do?"}})["retriever"]["documents"]

A pipeline with it can be saved and loaded, as
`Pipeline.load(file, allowed_modules=["hrag.integrations.haystack"])`.
"""

from collections.abc import Iterable
from typing import Any

try:
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.utils import Secret
except ImportError as error:
    from hrag.integrations import missing_package

    raise missing_package(error, "haystack") from None

from hrag.client import Client
from hrag.client.calls import RETRIEVER_ADDRESS
from hrag.integrations import native_filters
from hrag.integrations.bound_search import BoundSearch
from hrag.integrations.citation import citation
from hrag.values.errors import InvalidArgument, TooLarge
from hrag.values.filters import MAX_FILTER_DEPTH, AllOf, AnyOf, Filter, NoneOf
from hrag.values.ids import quoted
from hrag.values.limits import DEFAULT_COLLECTION
from hrag.values.search import Passage, SearchMode
from hrag.wire.filters import filter_from_json, filter_json

_TOKEN = Secret.from_env_var("HRAG_TOKEN", strict=False)
_META = "meta."
_OF_DOCUMENTS = ("id", "content", "blob", "score", "embedding", "sparse_embedding")

Filters = Filter | dict[str, Any]


@component
class HragRetriever:
    """Retrieves passages of one tenant's collection, best first.

    It makes its own client of the retriever at `address` when it is warmed up; `close`, which a
    pipeline calls, closes it, and the next run makes another. `token` is an API key or a JSON
    Web Token, without which `HRAG_TOKEN` of the environment counts; `ca_file` turns TLS on.
    `filters` are hrag's or Haystack's own; the other arguments are those of `Client.search`,
    `top_k` its `limit`, `search_options` those without a name of their own.

    A document's `id` is the chunk's, its `meta` as `hrag.integrations.citation` has it. Making
    one raises InvalidArgument or TypeError for what no search accepts; running it raises what
    `Client` and `Client.search` raise.
    """

    def __init__(
        self,
        tenant_id: str,
        *,
        address: str = RETRIEVER_ADDRESS,
        token: Secret | None = _TOKEN,
        ca_file: str | None = None,
        collection: str = DEFAULT_COLLECTION,
        mode: SearchMode | str = SearchMode.CONTEXT,
        top_k: int | None = None,
        token_budget: int = 0,
        min_score: float | None = None,
        filters: Filters | None = None,
        search_options: dict[str, Any] | None = None,
    ) -> None:
        self.tenant_id = tenant_id
        self.address = address
        self.token = token
        self.ca_file = ca_file
        self.collection = collection
        self.mode = mode
        self.top_k = top_k
        self.token_budget = token_budget
        self.min_score = min_score
        self.filters = filters
        self.search_options = search_options or {}
        options = dict(
            collection=collection,
            mode=mode,
            limit=top_k,
            token_budget=token_budget,
            min_score=min_score,
            filter=_filter_or_none(filters),
            **self.search_options,
        )
        self._search = BoundSearch(tenant_id, options)
        self._client: Client | None = None

    def warm_up(self) -> None:
        """Makes the client, which connects when it is first used."""
        self._warm_client()

    def _warm_client(self) -> Client:
        if self._client is None:
            token = self.token.resolve_value() if self.token else None
            # gRPC requires a valid address even for a service that is never called.
            addresses = (self.address, self.address)
            self._client = Client(*addresses, token=token or "", ca_file=self.ca_file)
        return self._client

    def close(self) -> None:
        """Closes the client; running searches end with an error. Safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: Filters | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Returns the passages that best answer `query`, best first, as `documents`.

        `top_k` replaces the component's own; `filters` must hold besides the component's own.
        """
        narrower = _filter_or_none(filters)
        found = self._search.passages(self._warm_client(), query, top_k, narrower)
        return {"documents": _documents(found)}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: Filters | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """As `run`; no thread waits meanwhile."""
        narrower = _filter_or_none(filters)
        client = self._warm_client()
        found = await self._search.awaited_passages(client, query, top_k, narrower)
        return {"documents": _documents(found)}

    def to_dict(self) -> dict[str, Any]:
        """Returns the component as Haystack saves it; a token itself cannot be saved."""
        own = self.filters
        saved: dict[str, Any] = default_to_dict(
            self,
            tenant_id=self.tenant_id,
            address=self.address,
            token=self.token,
            ca_file=self.ca_file,
            collection=self.collection,
            mode=str(self.mode),
            top_k=self.top_k,
            token_budget=self.token_budget,
            min_score=self.min_score,
            filters=own if own is None or isinstance(own, dict) else filter_json(own),
            search_options={name: _plain(value) for name, value in self.search_options.items()},
        )
        return saved

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "HragRetriever":
        """Returns the component that `to_dict` saved."""
        given = dict(data.get("init_parameters", {}))
        filters = given.get("filters")
        if filters is not None and "operator" not in filters:
            given["filters"] = filter_from_json(filters)
        made: HragRetriever = default_from_dict(cls, {**data, "init_parameters": given})
        return made


def _plain(value: object) -> object:
    """Without the class of an enumeration's member, which no file holds."""
    return str(value) if isinstance(value, str) else value


def _documents(passages: Iterable[Passage]) -> list[Document]:
    return [
        Document(
            id=passage.chunk.chunk_id,
            content=passage.chunk.content,
            meta=citation(passage),
            score=passage.score,
        )
        for passage in passages
    ]


def _filter_or_none(given: Filters | None) -> Filter | None:
    return filter_of(given) if isinstance(given, dict) else given


def filter_of(given: dict[str, Any], path: str = "filters", depth: int = 1) -> Filter:
    """Returns Haystack's filter as one of hrag's.

    Raises InvalidArgument for what hrag cannot express and what is no filter, and TooLarge for
    nesting past hrag's limit.
    """
    if depth > MAX_FILTER_DEPTH:
        raise TooLarge(f"filters are nested over {MAX_FILTER_DEPTH} deep", field="filters")
    if "conditions" not in _checked(given, path):
        key, operator, value = (_part(given, name, path) for name in ("field", "operator", "value"))
        field = _field(key, f"{path}.field")
        return native_filters.condition(field, operator, value, path)
    inner = tuple(
        filter_of(each, f"{path}.conditions[{number}]", depth + 1)
        for number, each in enumerate(_conditions(given, path))
    )
    match _part(given, "operator", path):
        case "AND":
            return AllOf(inner)
        case "OR":
            return AnyOf(inner)
        case "NOT":  # Haystack: not all of them match.
            return NoneOf((AllOf(inner),))
        case other:
            raise _refused(f"{path}.operator", other, "AND, OR or NOT beside conditions")


def _checked(given: object, path: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise _refused(path, given, "a filter of Haystack, which is a dictionary")
    return given


def _part(given: dict[str, Any], name: str, path: str) -> Any:
    if name not in given:
        raise InvalidArgument(f"{path}.{name} is missing", field=f"{path}.{name}")
    return given[name]


def _conditions(given: dict[str, Any], path: str) -> list[Any]:
    conditions = given["conditions"]
    if not isinstance(conditions, list):
        raise _refused(f"{path}.conditions", conditions, "a list of filters")
    return conditions


def _field(key: object, path: str) -> str:
    """Like Haystack, takes a name that is no part of its Document for a key of `meta`."""
    if not isinstance(key, str) or key in _OF_DOCUMENTS:
        raise _refused(path, key, "meta.<key>: hrag filters by metadata, title, source and id")
    return native_filters.field_of(key.removeprefix(_META), path)


def _refused(path: str, value: object, allowed: str) -> InvalidArgument:
    return InvalidArgument(f"{path} is {quoted(str(value))}; it must be {allowed}", field=path)
