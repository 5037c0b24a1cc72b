"""The collections and aliases of a store, and their differences between two stores.

A target may have collections that the source does not have, for example those of other tenants.
They are ignored.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from hrag.engine.protocols import Reader
from hrag.values.collections import Collection, CollectionSettings

Place = tuple[str, str]
"""A tenant, and the name of a collection or an alias."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between source and target.

    `document_id` is empty if the difference concerns a collection or an alias. `collection` is
    empty too if it concerns a tenant.
    """

    tenant_id: str
    collection: str
    document_id: str
    problem: str


@dataclass(frozen=True, slots=True)
class TransferCatalog:
    """The collections and aliases of a store.

    `aliases` maps the tenant and name of each alias to the name of its collection.
    """

    collections: Mapping[Place, Collection]
    aliases: Mapping[Place, str]

    @classmethod
    def of(cls, reader: Reader) -> "TransferCatalog":
        """Reads the catalog of every tenant that has a collection, in order of names."""
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
        """The number of documents in all collections."""
        return sum(collection.document_count for collection in self.collections.values())


def tenants_of(places: Mapping[Place, object]) -> list[str]:
    """Returns each tenant once, in ascending order."""
    return sorted({tenant_id for tenant_id, _ in places})


def conflicts(source: TransferCatalog, target: TransferCatalog) -> Iterator[Difference]:
    """Yields the collections and aliases that cannot be copied.

    The target already has their names, but with other settings or with another meaning.
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
            yield Difference(*place, "", "is an alias in the source, a collection in the target")
        elif target.aliases.get(place, collection_name) != collection_name:
            problem = _moved_alias(collection_name, target.aliases[place])
            yield Difference(*place, "", problem)


def missing(source: TransferCatalog, target: TransferCatalog) -> Iterator[Difference]:
    """Yields the collections and aliases that only one of the two stores has.

    Of those that only the target has, it yields only aliases of the source's collections.
    """
    ours = source.collections.keys() | source.aliases.keys()
    theirs = target.collections.keys() | target.aliases.keys()
    for place in sorted(ours - theirs):
        collection_name = source.aliases.get(place)
        kind = f", an alias of {collection_name!r}" if collection_name else ""
        yield Difference(*place, "", f"is missing in the target{kind}")
    for place in sorted(target.aliases.keys() - ours):
        collection_name = target.aliases[place]
        if (place[0], collection_name) in source.collections:
            yield Difference(*place, "", f"is in the target alone, an alias of {collection_name!r}")


def _setting_differences(source: CollectionSettings, target: CollectionSettings) -> str:
    """Returns the settings that differ, with both values; "" if all are equal."""
    values = ((field.name, getattr(source, field.name), getattr(target, field.name))
              for field in fields(CollectionSettings))  # fmt: skip
    parts = [f"{name} is {ours!s} in the source, {theirs!s} in the target"
             for name, ours, theirs in values if ours != theirs]  # fmt: skip
    return "; ".join(parts)


def _moved_alias(source: str, target: str) -> str:
    """Returns the problem of an alias that names different collections in the two stores."""
    return f"is an alias of {source!r} in the source, of {target!r} in the target"
