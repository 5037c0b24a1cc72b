"""The bounds of tenants: the settings' for all, and a file's for those it names.

The file is TOML, a table for each tenant; what a table does not say is as for all. It is
read again when it changes, as `hrag.net.watched_file` says.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from hrag.config import AtMost, CallsAtOnce, CallsPerSecond, CommonSettings, SettingsError
from hrag.ids import is_name, shown
from hrag.net.watched_file import Watched
from hrag.quota.quotas import Quota


def _tenant(value: str) -> str:
    if not is_name(value):
        raise ValueError
    return value


class _Table(BaseModel, extra="forbid"):
    calls_per_s: CallsPerSecond = None
    burst: CallsAtOnce = None
    max_bytes: AtMost = None
    max_documents: AtMost = None
    max_collections: AtMost = None


_FILE = TypeAdapter(dict[Annotated[str, AfterValidator(_tenant)], _Table])


def read(path: Path, default: Quota) -> Mapping[str, Quota]:
    """The bounds by tenant; raises OSError, or ValueError that says what is wrong in it."""
    with path.open("rb") as file:
        found = tomllib.load(file)
    try:
        tables = _FILE.validate_python(found, strict=True)
    except ValidationError as error:
        raise ValueError("; ".join(map(_explain, error.errors()))) from None
    return {
        name: replace(default, **table.model_dump(exclude_unset=True))
        for name, table in tables.items()
    }


def _explain(error: ErrorDetails) -> str:
    tenant, *keys = map(str, error["loc"])
    place = f"[{shown(tenant)}]"
    match error["type"]:
        case "extra_forbidden":
            known = ", ".join(field.name for field in fields(Quota))
            return (
                f"{place} has {shown(keys[0])}; it may have {known}, and the id of a tenant "
                "with a dot in it stands in quotes"
            )
        case "value_error":
            return f"{place} must have the id of a tenant for its name"
        case "model_type":
            return f"{place} must be a table"
    also = "" if keys[0] == "burst" else ", or 'unlimited'"
    return f"{place} {keys[0]} is {error['input']!r}: {error['msg']}{also}"


class Quotas:
    """Gives the bounds of any tenant, as of now. Safe to use from several threads."""

    def __init__(self, default: Quota, path: Path | None = None) -> None:
        """Raises OSError or ValueError if the file cannot be used."""
        self._default = default
        self._own = None if path is None else Watched((path,), lambda: read(path, default))

    def __call__(self, tenant_id: str) -> Quota:
        if self._own is None:
            return self._default
        return self._own().get(tenant_id, self._default)


def open_quotas(settings: CommonSettings) -> Quotas:
    """What the settings say; raises SettingsError for a file that cannot be used."""
    path = settings.tenant_quotas_file
    try:
        return Quotas(settings.tenant_quota, path)
    except (OSError, ValueError) as error:
        raise SettingsError(f"HRAG_TENANT_QUOTAS_FILE is {path}: {error}") from None
