"""hrag as a retriever of Haystack: the extra `haystack`.

    pipeline = Pipeline()
    pipeline.add_component("retriever", HragRetriever("acme", address="127.0.0.1:50052"))
    pipeline.run({"retriever": {"query": "what do dogs do?"}})["retriever"]["documents"]

A pipeline that contains the retriever can be saved. To load the pipeline, call
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
from hrag.client.targets import RETRIEVER_ADDRESS
from hrag.integrations import native_filters
from hrag.integrations.bound_search import BoundSearch
from hrag.integrations.citation import citation
from hrag.values.errors import InvalidArgument, TooLarge
from hrag.values.filters import (
    FORMAT_FIELDS,
    MAX_FILTER_DEPTH,
    METADATA,
    AllOf,
    AnyOf,
    Filter,
    NoneOf,
)
from hrag.values.ids import quoted
from hrag.values.limits import DEFAULT_COLLECTION
from hrag.values.search import Passage, SearchMode
from hrag.wire.filters import filter_from_json, filter_json

_TOKEN = Secret.from_env_var("HRAG_TOKEN", strict=False)
_META = "meta."
# Fields of Haystack's Document that hrag cannot filter by.
_DOCUMENT_FIELDS = ("id", "content", "blob", "score", "embedding", "sparse_embedding")

Filters = Filter | dict[str, Any]


@component
class HragRetriever:
    """Retrieves passages of one tenant's collection, best first.

    `warm_up` creates a client of hrag's retriever service at `address`. `close`, which a pipeline
    calls, closes the client; the next run creates a new client. `token` is an API key or a JSON Web
    Token; by default it is read from the environment variable `HRAG_TOKEN`. If `ca_file` is given,
    TLS is used. `filters` is a filter of hrag or of Haystack. The other arguments are arguments of
    `Client.search`: `top_k` is the argument `limit`, and `search_options` contains the arguments of
    `Client.search` that are not parameters of this class.

    The `id` of a returned document is the id of its chunk, and its `meta` is the dictionary that
    `hrag.integrations.citation` returns. Creating a retriever raises InvalidArgument or
    TypeError for arguments that no search accepts. Running the retriever raises the errors of
    `Client` and of `Client.search`.
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
        """Creates the client, which connects when it is first used."""
        self._warm_client()

    def _warm_client(self) -> Client:
        if self._client is None:
            token = self.token.resolve_value() if self.token else None
            # A client has an address for the indexer and an address for the retriever. The indexer
            # is never called, but gRPC requires a valid address for the indexer too.
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

        `top_k` replaces the component's `top_k`. `filters` are applied in addition to the
        component's `filters`.
        """
        added_filter = _filter_or_none(filters)
        passages = self._search.passages(self._warm_client(), query, top_k, added_filter)
        return {"documents": _documents(passages)}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: Filters | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Returns the result of `run` without blocking a thread."""
        added_filter = _filter_or_none(filters)
        client = self._warm_client()
        passages = await self._search.awaited_passages(client, query, top_k, added_filter)
        return {"documents": _documents(passages)}

    def to_dict(self) -> dict[str, Any]:
        """Returns the component as a dictionary, in Haystack's format.

        The dictionary never contains the token. If the token is read from an environment variable,
        the dictionary contains the name of the variable. If the token was given as text, Haystack
        raises an error.
        """
        filters = self.filters
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
            filters=(
                filters if filters is None or isinstance(filters, dict) else filter_json(filters)
            ),
            search_options={name: _to_plain(value) for name, value in self.search_options.items()},
        )
        return saved

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "HragRetriever":
        """Returns a component with the arguments in `data`, which `to_dict` returned."""
        parameters = dict(data.get("init_parameters", {}))
        filters = parameters.get("filters")
        if filters is not None and "operator" not in filters:
            parameters["filters"] = filter_from_json(filters)
        retriever: HragRetriever = default_from_dict(cls, {**data, "init_parameters": parameters})
        return retriever


def _to_plain(value: object) -> object:
    """Returns a text as plain `str`, even if it is a member of an enumeration.

    This is needed because a saved pipeline cannot contain members of an enumeration. Any other
    value is returned unchanged.
    """
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


def _filter_or_none(filters: Filters | None) -> Filter | None:
    return filter_of(filters) if isinstance(filters, dict) else filters


def filter_of(filters: dict[str, Any], path: str = "filters", depth: int = 1) -> Filter:
    """Returns the filter of hrag that means the same as a filter of Haystack.

    `path` names the filter in error messages. Raises InvalidArgument for a filter that hrag cannot
    express and for a value that is not a filter. Raises TooLarge for a filter that is nested more
    than MAX_FILTER_DEPTH levels deep.
    """
    if depth > MAX_FILTER_DEPTH:
        raise TooLarge(
            f"filters are nested over {MAX_FILTER_DEPTH} deep; at most {MAX_FILTER_DEPTH} levels "
            "are allowed",
            field="filters",
        )
    if "conditions" not in _checked(filters, path):
        key, operator, value = (
            _part(filters, name, path) for name in ("field", "operator", "value")
        )
        field = _field(key, f"{path}.field")
        return native_filters.condition(field, operator, value, path)
    inner = tuple(
        filter_of(condition, f"{path}.conditions[{number}]", depth + 1)
        for number, condition in enumerate(_conditions(filters, path))
    )
    match _part(filters, "operator", path):
        case "AND":
            return AllOf(inner)
        case "OR":
            return AnyOf(inner)
        case "NOT":  # In Haystack, NOT means that at least one condition does not match.
            return NoneOf((AllOf(inner),))
        case operator:
            raise _invalid(f"{path}.operator", operator, "AND, OR or NOT if there are conditions")


def _checked(filters: object, path: str) -> dict[str, Any]:
    if not isinstance(filters, dict):
        raise _invalid(path, filters, "a filter of Haystack, which is a dictionary")
    return filters


def _part(filters: dict[str, Any], name: str, path: str) -> Any:
    if name not in filters:
        raise InvalidArgument(f"{path}.{name} is missing", field=f"{path}.{name}")
    return filters[name]


def _conditions(filters: dict[str, Any], path: str) -> list[Any]:
    conditions = filters["conditions"]
    if not isinstance(conditions, list):
        raise _invalid(f"{path}.conditions", conditions, "a list of filters")
    return conditions


def _field(key: object, path: str) -> str:
    """Returns the name of the field in hrag's filters for `key`, a field in a Haystack filter.

    As in Haystack, a name that is not a field of Haystack's Document is treated as a key of `meta`.
    Only `format` and `mime_type` differ with `meta.` before them: the `meta` of a returned document
    does not contain the format of the document, so such a key is from the document's metadata.
    `path` names the field in error messages. Raises InvalidArgument for a field that hrag cannot
    filter by.
    """
    if not isinstance(key, str) or key in _DOCUMENT_FIELDS:
        allowed = "meta.<key>: hrag filters by metadata, id, title, source and format"
        raise _invalid(path, key, allowed)
    name = key.removeprefix(_META)
    if name != key and name in FORMAT_FIELDS:
        return METADATA + name
    return native_filters.field_of(name, path)


def _invalid(path: str, value: object, allowed: str) -> InvalidArgument:
    return InvalidArgument(f"{path} is {quoted(str(value))}; it must be {allowed}", field=path)
