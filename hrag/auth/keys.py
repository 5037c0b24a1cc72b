"""API keys, and the file that lists them.

A key is `hrag_<id>_<secret>`. The id says which line of the file it is, and is no secret;
the secret has 256 random bits, so its plain SHA-256 is enough to store: no dictionary holds
it, and a slow hash would only slow down every call. The file never holds a key itself.
"""

import fcntl
import hmac
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import AfterValidator, AwareDatetime, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from hrag.auth import ANY_TENANT, REFUSAL, Identity, Role
from hrag.errors import Unauthenticated
from hrag.ids import is_name
from hrag.net.watched_file import Watched

_log = structlog.get_logger()

MAX_NOTE_CHARS = 200
MAX_TENANTS = 1000

_ID_BYTES = 6
_SECRET_BYTES = 32
_KEY = re.compile(r"hrag_(?P<id>[0-9a-f]{12})_(?P<secret>[A-Za-z0-9_-]{43})")
_FOR_EVER = float("inf")


def _tenant(value: str) -> str:
    if value != ANY_TENANT and not is_name(value):
        raise ValueError("must be the id of a tenant, or * for all")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A line of the file."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    tenants: Annotated[
        tuple[Annotated[str, AfterValidator(_tenant)], ...],
        Field(min_length=1, max_length=MAX_TENANTS),
    ]
    role: Role
    note: Annotated[str, Field(max_length=MAX_NOTE_CHARS)] = ""
    created: AwareDatetime
    expires: AwareDatetime | None = None
    revoked: AwareDatetime | None = None


@dataclass(frozen=True, slots=True)
class _File:
    keys: tuple[Key, ...] = ()


_FILE = TypeAdapter(_File)
_KEY_LINE = TypeAdapter(Key)


def read(path: Path) -> tuple[Key, ...]:
    """All keys of a file; raises OSError, or ValueError that says what is wrong in it."""
    try:
        found = _FILE.validate_json(path.read_bytes()).keys
    except ValidationError as error:
        raise _problem(error) from None
    if len({key.id for key in found}) < len(found):
        raise ValueError("two keys have the same id")
    return found


def _problem(error: ValidationError) -> ValueError:
    """What is wrong where; the values stay out of it."""
    return ValueError("; ".join(map(_explain, error.errors(include_input=False))))


def _explain(error: ErrorDetails) -> str:
    place = ".".join(map(str, error["loc"]))
    return f"{place}: {error['msg']}" if place else error["msg"]


def create(
    path: Path, tenants: tuple[str, ...], role: Role, note: str, lifetime: timedelta | None
) -> str:
    """Adds a key to the file, which it makes if there is none; returns the key.

    Raises ValueError for a value that is not allowed, OSError.
    """
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    now = datetime.now(UTC).replace(microsecond=0)
    line = {
        "id": secrets.token_hex(_ID_BYTES),
        "sha256": _digest(secret),
        "tenants": tenants,
        "role": role,
        "note": note,
        "created": now,
        "expires": None if lifetime is None else now + lifetime,
    }
    try:
        key = _KEY_LINE.validate_python(line)
    except ValidationError as error:
        raise _problem(error) from None
    path = path.resolve()  # What a link names is replaced, not the link.
    with _only_writer(path):
        keys = read(path) if path.exists() else ()
        _write(path, (*keys, key))
    return f"hrag_{key.id}_{secret}"


def revoke(path: Path, key_id: str) -> Key:
    """Makes a key invalid for ever; it stays listed. Raises ValueError if there is none."""
    path = path.resolve()
    with _only_writer(path):
        keys = {key.id: key for key in read(path)}
        if key_id not in keys:
            raise ValueError(f"no key has the id {key_id!r}; hrag keys list shows all")
        found = keys[key_id]
        if found.revoked is None:
            found = replace(found, revoked=datetime.now(UTC).replace(microsecond=0))
            _write(path, tuple((keys | {key_id: found}).values()))
    return found


@contextmanager
def _only_writer(path: Path) -> Iterator[None]:
    """Holds the file's folder: the file itself is replaced, so it cannot be what is locked."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
        os.fsync(folder)
    finally:
        os.close(folder)


def _write(path: Path, keys: tuple[Key, ...]) -> None:
    """Replaces the file in one step; a new one may be read by its owner alone."""
    text = _FILE.dump_json(_File(keys), indent=2, exclude_none=True)
    # mkstemp gives it mode 0600.
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text + b"\n")
            file.flush()
            _keep_readers(handle, path)
            os.fsync(handle)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _keep_readers(handle: int, path: Path) -> None:
    """Gives the new file the owner and mode of the one it replaces.

    A service that runs as another user would not see a revocation otherwise.
    """
    if not path.exists():
        return
    before, made = path.stat(), os.fstat(handle)
    if (before.st_uid, before.st_gid) != (made.st_uid, made.st_gid):
        os.fchown(handle, before.st_uid, before.st_gid)
    os.fchmod(handle, stat.S_IMODE(before.st_mode))


def _digest(secret: str) -> str:
    return sha256(secret.encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True)
class _Entry:
    digest: str
    identity: Identity
    until: float


# Unknown ids are compared with this one, so that they take as long as known ones.
_NOBODY = _Entry("0" * 64, Identity("", frozenset(), Role.READ), 0.0)


class ApiKeys:
    """Checks API keys against a file, which may change. Safe to use from several threads."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Raises OSError or ValueError if the file cannot be used."""
        self._path = path
        self._clock = clock
        self._entries = Watched((path,), self._read)

    def _read(self) -> dict[str, _Entry]:
        entries = {key.id: _entry(key) for key in read(self._path)}
        if all(entry.until <= self._clock() for entry in entries.values()):
            _log.warning(
                "no_valid_key",
                file=str(self._path),
                effect="every call is refused",
                remedy="hrag keys create",
            )
        return entries

    def __call__(self, credential: str) -> Identity:
        """Raises Unauthenticated, in the same words and time for whatever is wrong."""
        match = _KEY.fullmatch(credential)
        if match is None:
            raise Unauthenticated(REFUSAL)
        entry = self._entries().get(match["id"], _NOBODY)
        is_same = hmac.compare_digest(_digest(match["secret"]), entry.digest)
        if not is_same or self._clock() >= entry.until:
            raise Unauthenticated(REFUSAL)
        return entry.identity


def _entry(key: Key) -> _Entry:
    until = _FOR_EVER if key.expires is None else key.expires.timestamp()
    if key.revoked is not None:
        until = 0.0
    return _Entry(key.sha256, Identity(key.id, frozenset(key.tenants), key.role), until)
