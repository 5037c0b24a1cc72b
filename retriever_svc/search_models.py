"""The models that embed queries: the current one and, if there is one, the previous one.

A query is embedded with the model of its collection. Each model has its own cache.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hrag.models.embedding import Embedder
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.embedders import Embedders
from hrag.values.collections import CollectionSettings
from hrag.values.deadline import Deadline
from retriever_svc.query_vectors import EmbeddedSearch, QueryVectors


@dataclass(frozen=True, slots=True)
class SearchModel:
    """An embedder of queries, and its cache."""

    embedder: Embedder
    queries: CachedQueries


class SearchModels:
    """The models of a retriever. Safe to call from several threads.

    With `allows_fallback`, HYBRID queries are answered by words alone while their model does not
    work.
    """

    def __init__(self, models: Sequence[SearchModel], *, allows_fallback: bool) -> None:
        self.current = models[0]
        self.embedders = Embedders(*(model.embedder for model in models))
        self._models = {model.embedder.name: model for model in models}
        self._vectors = {
            name: QueryVectors(model.queries, allows_fallback=allows_fallback)
            for name, model in self._models.items()
        }

    def named(self, name: str) -> SearchModel:
        """Returns the model with the embedder `name`; the current model if no model has it."""
        return self._models.get(name, self.current)

    def of(self, settings: CollectionSettings) -> SearchModel:
        """Returns the model of the collection with these settings, or raises EmbedderMismatch."""
        return self._models[self.embedders.of(settings).name]

    def embed(
        self, runs: Sequence[EmbeddedSearch], deadline: Deadline, embedding_s: float = math.inf
    ) -> None:
        """Sets the vector of each search, or the reason why it has none.

        See `QueryVectors`. The searches of each model are embedded together.
        """
        for name, vectors in self._vectors.items():
            of_model = [run for run in runs if self.named(run.embedder).embedder.name == name]
            if of_model:
                vectors(of_model, deadline, embedding_s)
