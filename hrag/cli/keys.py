"""`hrag keys`: creates, lists and revokes the API keys that the services accept."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from hrag.cli.options import AsJson
from hrag.cli.store import audited
from hrag.cli.terminal import Failure, output, print_json, print_line
from hrag.server.auth import Role
from hrag.text.plain_text import printable

if TYPE_CHECKING:
    from hrag.server.auth.api_keys import Key

_MAX_DAYS = 36_500

File = Annotated[
    Path,
    typer.Option(
        "--file",
        envvar="HRAG_API_KEYS_FILE",
        dir_okay=False,
        help="The key file that the services read. It contains hashes of the keys, not the keys.",
    ),
]


def create_key(
    file: File,
    tenant: Annotated[
        list[str],
        typer.Option(
            "--tenant",
            help="Tenant that the key is valid for; repeat the option for several tenants. '*' "
            "means all tenants.",
        ),
    ],
    role: Annotated[
        Role,
        typer.Option(
            help="What the key allows. read: search, list and get. write: also ingest, create "
            "collections and delete documents. admin: also delete collections."
        ),
    ] = Role.READ,
    note: Annotated[
        str, typer.Option(help="A note for people, such as the owner of the key.")
    ] = "",
    days: Annotated[
        int | None,
        typer.Option(min=1, max=_MAX_DAYS, help="Days until the key expires. Default: never."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create an API key and print it. It cannot be shown again.

    The command prints the key and nothing else. Services that run with HRAG_AUTH=api_key and
    this file accept the key within a second.

    \b
    Examples:
      hrag keys create --tenant acme --role write --note "the nightly import"
      export HRAG_TOKEN=$(hrag keys create --tenant acme)
    """
    # The module loads pydantic, which is slow, so it is imported only when a key is created.
    from hrag.server.auth import api_keys  # noqa: PLC0415

    lifetime = None if days is None else timedelta(days=days)
    tenants = tuple(dict.fromkeys(tenant))
    try:
        with audited("keys create", file=str(file)) as entry:
            key = api_keys.create(file, tenants, role, note, lifetime)
            entry.update(key=api_keys.id_of(key), role=role.value, tenants=tenants)
    except (OSError, ValueError) as error:
        raise _failure(file, error) from None
    if as_json:
        print_json({"id": api_keys.id_of(key), "key": key, "role": role, "tenants": tenants})
    else:
        typer.echo(key)


def list_keys(
    file: File,
    as_json: AsJson = False,
) -> None:
    """List all API keys: their ids, tenants and roles, never the keys themselves.

    A key is valid, expired or revoked.

    \b
    Example:
      hrag keys list
    """
    from hrag.server.auth import api_keys  # noqa: PLC0415

    try:
        all_keys = api_keys.read(file)
    except (OSError, ValueError) as error:
        raise _failure(file, error) from None
    if as_json:
        print_json([_as_json(key) for key in all_keys])
    elif all_keys:
        output().print(_table(all_keys))
    else:
        output().print("no keys yet")


def revoke_key(
    file: File,
    key_id: Annotated[
        str, typer.Argument(metavar="ID", help="The key's id, as shown by hrag keys list.")
    ],
    as_json: AsJson = False,
) -> None:
    """Revoke an API key permanently.

    Services refuse the key within a second.

    \b
    Example:
      hrag keys revoke 3f9a0c41d27e
    """
    from hrag.server.auth import api_keys  # noqa: PLC0415

    try:
        with audited("keys revoke", file=str(file)) as entry:
            key = api_keys.revoke(file, key_id)
            entry["key"] = key.id
    except (OSError, ValueError) as error:
        raise _failure(file, error) from None
    if as_json:
        print_json(_as_json(key))
    else:
        print_line(f"key {key.id} is revoked")


def _failure(file: Path, error: OSError | ValueError) -> Failure:
    problem = error.strerror if isinstance(error, OSError) else error
    return Failure(f"keys of {file}: {problem}")


def _as_json(key: "Key") -> dict[str, object]:
    return {
        "id": key.id,
        "tenants": key.tenants,
        "role": key.role,
        "state": _state(key),
        "note": key.note,
        "created": key.created.isoformat(),
        "expires": key.expires.isoformat() if key.expires else None,
        "revoked": key.revoked.isoformat() if key.revoked else None,
    }


def _state(key: "Key") -> str:
    if key.revoked is not None:
        return "revoked"
    has_expired = key.expires is not None and key.expires <= datetime.now(UTC)
    return "expired" if has_expired else "valid"


def _table(keys: tuple["Key", ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("id", "role", "tenants", "state", "created", "expires", "note"):
        table.add_column(name, overflow="fold")
    for key in keys:
        table.add_row(
            key.id,
            key.role.value,
            " ".join(key.tenants),
            _state(key),
            f"{key.created:%Y-%m-%d}",
            f"{key.expires:%Y-%m-%d}" if key.expires else "never",
            printable(key.note),
        )
    return table
