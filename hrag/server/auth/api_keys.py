"""API keys, and the key file that lists them.

A key is `hrag_<id>_<secret>`. The id identifies the key's entry in the file and is not secret. The
secret has 256 random bits, so nobody can guess it from its hash. Therefore the file stores the
plain SHA-256 of the secret; a slow hash would only slow down every call. The file never contains a
key itself.
"""

import fcntl
import hmac
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import AfterValidator, AwareDatetime, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from hrag.host.operator_files import read_operator_file
from hrag.host.watched_file import WatchedFile
from hrag.server.auth import REFUSAL, Identity, Role, is_tenant_pattern
from hrag.values.errors import Unauthenticated
from hrag.values.ids import NAME_RULE

_log = structlog.get_logger()

MAX_NOTE_CHARS = 200
MAX_TENANTS = 1000

_ID_BYTES = 6
_SECRET_BYTES = 32
_KEY = re.compile(r"hrag_(?P<id>[0-9a-f]{12})_(?P<secret>[A-Za-z0-9_-]{43})")
_NEVER = float("inf")


def _check_tenant_pattern(value: str) -> str:
    if not is_tenant_pattern(value):
        raise ValueError(f"must be * for all tenants, or the id of one tenant: {NAME_RULE}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An entry of the key file: the hash of a key's secret, and what the key permits."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    tenants: Annotated[
        tuple[Annotated[str, AfterValidator(_check_tenant_pattern)], ...],
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
_KEY_ENTRY = TypeAdapter(Key)


def read(path: Path) -> tuple[Key, ...]:
    """Returns all entries of a key file, including those of revoked and expired keys.

    Raises OSError if the file cannot be read. Raises ValueError, which describes the problem, if
    the content of the file is invalid, or if `read_operator_file` does not accept the file.
    """
    return _parse(read_operator_file(path))


def _parse(file: bytes) -> tuple[Key, ...]:
    try:
        keys = _FILE.validate_json(file).keys
    except ValidationError as error:
        raise _invalid(error) from None
    if len({key.id for key in keys}) < len(keys):
        raise ValueError("two keys have the same id")
    return keys


def _invalid(error: ValidationError) -> ValueError:
    """Returns an error that names each invalid field, without the value of the field.

    If all items of a list are invalid, the validator also reports that the list is too short. This
    problem is left out, because the problems of the items say what is wrong.
    """
    problems = error.errors(include_input=False)
    parents = {problem["loc"][:end] for problem in problems for end in range(len(problem["loc"]))}
    return ValueError(
        "; ".join(_explain(problem) for problem in problems if problem["loc"] not in parents)
    )


def _explain(error: ErrorDetails) -> str:
    field = ".".join(map(str, error["loc"]))
    problem = error["msg"].removeprefix("Value error, ")
    return f"{field}: {problem}" if field else problem


def create(
    path: Path, tenants: tuple[str, ...], role: Role, note: str, lifetime: timedelta | None
) -> str:
    """Adds a key to the key file and returns the key; creates the file if it is missing.

    `lifetime` is None for a key that does not expire. Raises ValueError if an argument is invalid,
    and OSError if the file cannot be read or written. Several processes may call this function at
    the same time.
    """
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    now = datetime.now(UTC).replace(microsecond=0)
    entry = {
        "id": secrets.token_hex(_ID_BYTES),
        "sha256": _digest(secret),
        "tenants": tenants,
        "role": role,
        "note": note,
        "created": now,
        "expires": None if lifetime is None else now + lifetime,
    }
    try:
        key = _KEY_ENTRY.validate_python(entry)
    except ValidationError as error:
        raise _invalid(error) from None
    path = path.resolve()  # If the path is a symbolic link, the link's target is replaced.
    with _exclusive_lock(path):
        keys = read(path) if path.exists() else ()
        _write(path, (*keys, key))
    return f"hrag_{key.id}_{secret}"


def id_of(key: str) -> str:
    """Returns the id, which is not secret, of a key that `create` has returned."""
    return key.split("_")[1]


def revoke(path: Path, key_id: str) -> Key:
    """Revokes a key permanently and returns its entry, which stays in the file.

    Raises ValueError if no key has this id, and OSError if the file cannot be read or written.
    Several processes may call this function at the same time.
    """
    path = path.resolve()
    with _exclusive_lock(path):
        keys = {key.id: key for key in read(path)}
        if key_id not in keys:
            raise ValueError(f"there is no key with the id {key_id!r}; see `hrag keys list`")
        key = keys[key_id]
        if key.revoked is None:
            key = replace(key, revoked=datetime.now(UTC).replace(microsecond=0))
            _write(path, tuple((keys | {key_id: key}).values()))
    return key


@contextmanager
def _exclusive_lock(path: Path) -> Iterator[None]:
    """Locks the folder of the key file in the `with` block.

    The file itself cannot be locked, because a change replaces it with another file.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
        os.fsync(folder)
    finally:
        os.close(folder)


def _write(path: Path, keys: tuple[Key, ...]) -> None:
    """Writes the key file atomically: replaces the old file with a new file.

    The new file gets the owner and the mode of the old file. If there was no file, the mode is
    0600.
    """
    text = _FILE.dump_json(_File(keys), indent=2, exclude_none=True)
    # mkstemp creates the temporary file with mode 0600.
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text + b"\n")
            file.flush()
            _copy_access(handle, path)
            os.fsync(handle)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _copy_access(handle: int, path: Path) -> None:
    """Copies the owner and the mode of the key file at `path` to the file that will replace it.

    Otherwise a service that runs as another user could not read the new file, and a revocation
    would have no effect. `handle` is the file descriptor of the new file.
    """
    if not path.exists():
        return
    old, new = path.stat(), os.fstat(handle)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        os.fchown(handle, old.st_uid, old.st_gid)
    os.fchmod(handle, stat.S_IMODE(old.st_mode))


def _digest(secret: str) -> str:
    return sha256(secret.encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True)
class _KeyEntry:
    digest: str
    identity: Identity
    expires_s: float  # The time of expiry, as Unix time in seconds.


# If no key has the id, the secret is compared with the digest of this entry. So the refusal takes
# as long as if a key had the id.
_DUMMY = _KeyEntry("0" * 64, Identity("", frozenset(), Role.READ), 0.0)


class ApiKeys:
    """Verifies API keys with the key file. The file is reloaded when it changes. Thread-safe."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Reads the key file.

        Raises OSError if the file cannot be read, and ValueError if it is invalid.
        """
        self._path = path
        self._clock = clock
        self._entries = WatchedFile("HRAG_API_KEYS_FILE", (path,), self._parse)

    def _parse(self, contents: Sequence[bytes]) -> dict[str, _KeyEntry]:
        entries = {key.id: _entry(key) for key in _parse(contents[0])}
        if all(entry.expires_s <= self._clock() for entry in entries.values()):
            _log.warning(
                "no_valid_api_key",
                file=str(self._path),
                effect="every call is refused",
                remedy="hrag keys create",
            )
        return entries

    def __call__(self, credential: str) -> Identity:
        """Returns the identity of a valid key, else raises Unauthenticated.

        The message and the duration of a refusal are the same for every reason.
        """
        match = _KEY.fullmatch(credential)
        if match is None:
            raise Unauthenticated(REFUSAL)
        entry = self._entries().get(match["id"], _DUMMY)
        is_same = hmac.compare_digest(_digest(match["secret"]), entry.digest)
        if not is_same or self._clock() >= entry.expires_s:
            raise Unauthenticated(REFUSAL)
        return entry.identity


def _entry(key: Key) -> _KeyEntry:
    expires_s = _NEVER if key.expires is None else key.expires.timestamp()
    if key.revoked is not None:
        expires_s = 0.0
    return _KeyEntry(key.sha256, Identity(key.id, frozenset(key.tenants), key.role), expires_s)
