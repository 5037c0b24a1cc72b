"""The collections and aliases of a store, and how they differ between two stores.

The target may have collections that the source does not have, for example the collections of other
tenants. Such collections are ignored.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from hrag.engine.protocols import Reader
from hrag.values.collections import Collection, CollectionSettings

Place = tuple[str, str]
"""The id of a tenant, and the name of one of its collections or aliases."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between source and target. `problem` describes the difference.

    The difference is about a document, about a collection or an alias, or about a whole tenant. If
    it is about a collection or an alias, `document_id` is empty, and `collection` is the name of
    the collection or alias. If it is about a tenant, `collection` and `document_id` are empty.
    """

    tenant_id: str
    collection: str
    document_id: str
    problem: str


@dataclass(frozen=True, slots=True)
class TransferCatalog:
    """The collections and aliases of a store.

    `collections` maps a pair of tenant id and collection name to the collection. `aliases` maps a
    pair of tenant id and alias to the name of the alias's collection.
    """

    collections: Mapping[Place, Collection]
    aliases: Mapping[Place, str]

    @classmethod
    def of(cls, reader: Reader) -> "TransferCatalog":
        """Reads the collections and aliases of every tenant that has a collection.

        Collections and aliases are in order of tenant and name.
        """
        collections = {
            (collection.tenant_id, collection.name): collection
            for collection in reader.collections()
        }
        aliases = {
            (tenant_id, alias.name): alias.collection
            for tenant_id in tenants_of(collections)
            for alias in reader.aliases(tenant_id)
        }
        return cls(collections, aliases)

    @property
    def documents(self) -> int:
        """The count of documents in all collections together."""
        return sum(collection.document_count for collection in self.collections.values())


def tenants_of(places: Mapping[Place, object]) -> list[str]:
    """Returns the tenant ids in the keys of `places`, ascending and without duplicates.

    A key is a pair of a tenant id and the name of a collection or alias.
    """
    return sorted({tenant_id for tenant_id, _ in places})


def conflicts(source: TransferCatalog, target: TransferCatalog) -> Iterator[Difference]:
    """Yields a difference for each collection and alias of the source that cannot be copied.

    A collection or alias cannot be copied if the target uses its name in another way: for a
    collection with different settings, for an alias of another collection, for an alias in place of
    a collection, or for a collection in place of an alias.
    """
    for place, collection in source.collections.items():
        if place in target.aliases:
            yield Difference(*place, "", "is an alias in the target")
        elif place in target.collections:
            problem = _setting_differences(collection.settings, target.collections[place].settings)
            if problem:
                yield Difference(*place, "", problem)
    for place, collection_name in source.aliases.items():
        if place in target.collections:
            problem = "is an alias in the source, but a collection in the target"
            yield Difference(*place, "", problem)
        elif target.aliases.get(place, collection_name) != collection_name:
            problem = _moved_alias(collection_name, target.aliases[place])
            yield Difference(*place, "", problem)


def missing(source: TransferCatalog, target: TransferCatalog) -> Iterator[Difference]:
    """Yields a difference for each collection and alias that only the source has.

    Also yields a difference for an alias that only the target has, if the alias refers to a
    collection that the source has too. Collections that only the target has are ignored.
    """
    ours = source.collections.keys() | source.aliases.keys()
    theirs = target.collections.keys() | target.aliases.keys()
    for place in sorted(ours - theirs):
        collection_name = source.aliases.get(place)
        kind = f"; it is an alias of {collection_name!r}" if collection_name else ""
        yield Difference(*place, "", f"is missing in the target{kind}")
    for place in sorted(target.aliases.keys() - ours):
        collection_name = target.aliases[place]
        if (place[0], collection_name) in source.collections:
            problem = f"exists only in the target, as an alias of {collection_name!r}"
            yield Difference(*place, "", problem)


def _setting_differences(source: CollectionSettings, target: CollectionSettings) -> str:
    """Returns a text with the settings that differ, with both values; "" if no setting differs."""
    values = ((field.name, getattr(source, field.name), getattr(target, field.name))
              for field in fields(CollectionSettings))  # fmt: skip
    parts = [f"{name} is {ours!s} in the source, but {theirs!s} in the target"
             for name, ours, theirs in values if ours != theirs]  # fmt: skip
    return "; ".join(parts)


def _moved_alias(source: str, target: str) -> str:
    """Returns a text that says that an alias refers to different collections in the two stores.

    `source` is the name of the collection in the source, `target` the name in the target.
    """
    return f"is an alias of {source!r} in the source, but of {target!r} in the target"
