"""What a store has besides documents, collections and aliases, and how two stores differ in it.

A target may have collections that the source does not have: those of other tenants, or its
own. They are not looked at.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from hrag.engine.protocols import Reader
from hrag.values.collections import Collection, CollectionSettings

Place = tuple[str, str]
"""A tenant, and the name of a collection or an alias."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that source and target do not have alike.

    `document_id` is empty if it concerns a collection or alias, `collection` too if a tenant.
    """

    tenant_id: str
    collection: str
    document_id: str
    problem: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """Collections and aliases of a store; `aliases` have the name of their collection."""

    collections: Mapping[Place, Collection]
    aliases: Mapping[Place, str]

    @classmethod
    def of(cls, reader: Reader) -> "Catalog":
        """Reads the catalog of every tenant that has a collection, in order of names."""
        collections = {(each.tenant_id, each.name): each for each in reader.collections()}
        aliases = {
            (tenant_id, alias.name): alias.collection
            for tenant_id in tenants_of(collections)
            for alias in reader.aliases(tenant_id)
        }
        return cls(collections, aliases)

    @property
    def documents(self) -> int:
        """Number of documents in all collections."""
        return sum(each.document_count for each in self.collections.values())


def tenants_of(places: Mapping[Place, object]) -> list[str]:
    """Returns each tenant once, in order."""
    return sorted({tenant_id for tenant_id, _ in places})


def conflicts(source: Catalog, target: Catalog) -> Iterator[Difference]:
    """Yields what the target has and the source has otherwise, so that it cannot be copied."""
    for place, collection in source.collections.items():
        if place in target.aliases:
            yield Difference(*place, "", "is an alias in the target")
        elif place in target.collections:
            problem = _differing(collection.settings, target.collections[place].settings)
            if problem:
                yield Difference(*place, "", problem)
    for place, named in source.aliases.items():
        if place in target.collections:
            yield Difference(*place, "", "is an alias in the source, a collection in the target")
        elif target.aliases.get(place, named) != named:
            yield Difference(*place, "", _misplaced(named, target.aliases[place]))


def missing(source: Catalog, target: Catalog) -> Iterator[Difference]:
    """Yields collections and aliases that only one of the two has.

    Of what the target alone has, only other names of the source's collections.
    """
    ours = source.collections.keys() | source.aliases.keys()
    theirs = target.collections.keys() | target.aliases.keys()
    for place in sorted(ours - theirs):
        named = source.aliases.get(place)
        kind = f", an alias of {named!r}" if named else ""
        yield Difference(*place, "", f"is missing in the target{kind}")
    for place in sorted(target.aliases.keys() - ours):
        named = target.aliases[place]
        if (place[0], named) in source.collections:
            yield Difference(*place, "", f"is in the target alone, an alias of {named!r}")


def _differing(source: CollectionSettings, target: CollectionSettings) -> str:
    """The settings that differ, with both values; "" if all are equal."""
    values = ((each.name, getattr(source, each.name), getattr(target, each.name))
              for each in fields(CollectionSettings))  # fmt: skip
    parts = [f"{name} is {one!s} in the source, {other!s} in the target"
             for name, one, other in values if one != other]  # fmt: skip
    return "; ".join(parts)


def _misplaced(source: str, target: str) -> str:
    return f"is an alias of {source!r} in the source, of {target!r} in the target"
