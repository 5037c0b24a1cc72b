"""Reports of administrative work on a store."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check: how much was read, and the problems that were found.

    Each problem names its place. A sound store has no problems.
    """

    collections: int
    documents: int
    leaves: int
    segments: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The contents of a backup.

    `sequence` is the number of the store's last commit, over all tenants. `created` is the time of
    the backup in UTC, in ISO 8601.
    """

    documents: int
    sequence: int
    size_bytes: int
    created: str


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """The size of the store's file before and after a vacuum."""

    before_bytes: int
    after_bytes: int


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """The version of a store's schema before and after a migration.

    `before` is 0 if there was no store.
    """

    before: int
    after: int


@dataclass(frozen=True, slots=True)
class ReindexedCollection:
    """A collection whose index was rebuilt, and the number of leaves in the new index."""

    tenant_id: str
    name: str
    leaves: int
