"""Quotas of tenants: defaults from the settings, and overrides from a file.

The file is TOML with a table for each tenant. If a table lacks a key, the default of this key
applies. The file is reloaded when it changes; `hrag.host.watched_file` describes how.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from hrag.config import BurstCalls, CallsPerSecond, CommonSettings, SettingsError, StorageLimit
from hrag.host.watched_file import WatchedFile
from hrag.values.ids import is_name, quoted
from hrag.values.quotas import Quota

_SETTING = "HRAG_TENANT_QUOTAS_FILE"


def _check_tenant(value: str) -> str:
    if not is_name(value):
        raise ValueError
    return value


class _Table(BaseModel, extra="forbid"):
    calls_per_s: CallsPerSecond = None
    burst: BurstCalls = None
    max_bytes: StorageLimit = None
    max_documents: StorageLimit = None
    max_collections: StorageLimit = None


_FILE = TypeAdapter(dict[Annotated[str, AfterValidator(_check_tenant)], _Table])


def parse(file: bytes, default: Quota) -> Mapping[str, Quota]:
    """Returns a dictionary from tenant id to quota, for each tenant that has a table in the file.

    `file` is the content of the file. If the table of a tenant lacks a key, the value in `default`
    applies. Raises ValueError, which describes the problem, if the content is invalid.
    """
    try:
        content = tomllib.loads(file.decode("utf-8"))
    except RecursionError:
        raise ValueError("the file is nested too deep") from None
    try:
        tables = _FILE.validate_python(content, strict=True)
    except ValidationError as error:
        raise ValueError("; ".join(map(_explain, error.errors()))) from None
    return {
        name: replace(default, **table.model_dump(exclude_unset=True))
        for name, table in tables.items()
    }


def _explain(error: ErrorDetails) -> str:
    tenant, *keys = map(str, error["loc"])
    table = f"[{quoted(tenant)}]"
    match error["type"]:
        case "extra_forbidden":
            allowed = ", ".join(field.name for field in fields(Quota))
            return (
                f"{table} has {quoted(keys[0])}; allowed are {allowed}; the id of a tenant "
                "with a dot must be quoted"
            )
        case "value_error":
            return f"{table} must be named by the id of a tenant"
        case "model_type":
            return f"{table} must be a table"
    also = "" if keys[0] == "burst" else ", or 'unlimited'"
    return f"{table} {keys[0]} is {error['input']!r}: {error['msg']}{also}"


class Quotas:
    """The quotas of all tenants. Thread-safe.

    Calling a Quotas object with a tenant id returns the quota of this tenant.
    """

    def __init__(self, default: Quota, path: Path | None = None) -> None:
        """Reads the quota file, unless `path` is None.

        Raises OSError if the file cannot be read, and ValueError if it is invalid.
        """

        def parse_file(contents: Sequence[bytes]) -> Mapping[str, Quota]:
            return parse(contents[0], default)

        self._default = default
        self._overrides = None if path is None else WatchedFile(_SETTING, (path,), parse_file)

    def __call__(self, tenant_id: str) -> Quota:
        """Returns the current quota of the tenant."""
        if self._overrides is None:
            return self._default
        return self._overrides().get(tenant_id, self._default)


def open_quotas(settings: CommonSettings) -> Quotas:
    """Returns the configured quotas; raises SettingsError if their file is missing or invalid."""
    path = settings.tenant_quotas_file
    try:
        return Quotas(settings.tenant_quota, path)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{_SETTING} is {path}: {error}") from None
