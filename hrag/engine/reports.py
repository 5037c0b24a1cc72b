"""Reports of administrative work on a store."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckReport:
    """How much a check has read, and the problems that it found, each with its place.

    A sound store has none.
    """

    collections: int
    documents: int
    leaves: int
    segments: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup holds.

    `sequence` is the number of the store's last commit, over all tenants. `created` is the
    time of the backup in UTC, ISO 8601.
    """

    documents: int
    sequence: int
    size_bytes: int
    created: str


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """Size of the store's file before and after a vacuum."""

    before_bytes: int
    after_bytes: int


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """The version of a store's schema before and after a migration; 0 where there was none."""

    before: int
    after: int


@dataclass(frozen=True, slots=True)
class ReindexedCollection:
    """A collection whose index is new, and how many leaves the index has."""

    tenant_id: str
    name: str
    leaves: int
