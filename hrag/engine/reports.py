"""What administrative work on a store reports."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check looked at, and each problem with its place; none in a sound store."""

    collections: int
    documents: int
    leaves: int
    segments: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup holds; `created` is its time in UTC, ISO 8601."""

    documents: int
    sequence: int
    size_bytes: int
    created: str


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """Bytes of the store's file before and after."""

    before_bytes: int
    after_bytes: int


@dataclass(frozen=True, slots=True)
class ReindexedCollection:
    """How many leaves of a collection its new index holds."""

    tenant_id: str
    name: str
    leaves: int
