"""The embedders of a service: the current one and, while collections move to it, the previous one.

New collections have the current embedder. A collection that has not been embedded again yet has the
previous one. Documents and queries are embedded with the embedder of their collection.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hrag.models.embedding import Embedder
from hrag.models.embedding.vector_checks import check_embedder
from hrag.values.collections import CollectionSettings


@dataclass(frozen=True, slots=True)
class Embedders:
    """The current embedder, and the previous one or None."""

    current: Embedder
    previous: Embedder | None = None

    def __iter__(self) -> Iterator[Embedder]:
        """Yields the current embedder and, if there is one, the previous one."""
        yield self.current
        if self.previous is not None:
            yield self.previous

    def of(self, settings: CollectionSettings) -> Embedder:
        """Returns the embedder of the collection with these settings.

        Compares only names, because reading the dimension of an embedder may need a request to an
        endpoint. Raises EmbedderMismatch if the service does not have the embedder.
        """
        for embedder in self:
            if embedder.name == settings.embedder:
                return embedder
        check_embedder(settings, " and ".join(embedder.name for embedder in self))
        raise AssertionError("the names of the embedders differ from the collection's")
