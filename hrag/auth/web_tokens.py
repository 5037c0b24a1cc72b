"""JSON Web Tokens of an issuer whose public keys lie in a file (a JWKS).

Only signatures by asymmetric keys count: whoever can check a token can not make one. A token
must say until when it is valid (`exp`), whose it is (`sub`), and be of the one issuer for
the one audience. A token that has been checked is remembered by its digest until it expires,
because checking a signature takes longer than a search takes to begin; when the file of keys
changes, all are forgotten. So withdrawing a signing key counts at once; a single token cannot
be withdrawn, and issuers give them short lives.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

import jwt
import structlog
from cachetools import LRUCache
from jwt import PyJWK, PyJWTError

from hrag.auth import ANY_TENANT, REFUSAL, Identity, Role
from hrag.errors import Unauthenticated
from hrag.ids import is_name, shown
from hrag.net.watched_file import Watched

ALGORITHMS = ("RS256", "ES256", "EdDSA")
MAX_REMEMBERED = 10_000  # Some 500 bytes each.

_REQUIRED = ("exp", "iss", "aud", "sub")

# The last two are what Python makes of absurd numbers and nesting.
_REFUSALS = (PyJWTError, ValueError, OverflowError, RecursionError)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Terms:
    """What a token must say, and where it says what its bearer may do."""

    issuer: str
    audience: str
    leeway_s: float
    tenants_claim: str
    role_claim: str


class WebTokens:
    """Checks tokens against a file of keys, which may change. Safe from several threads."""

    def __init__(self, path: Path, terms: Terms, clock: Callable[[], float] = time.time) -> None:
        """Raises OSError or ValueError if the file cannot be used."""
        self._checked = Watched((path,), lambda: _Checked(read(path), terms, clock))

    def __call__(self, credential: str) -> Identity:
        """Raises Unauthenticated, in the same words for whatever is wrong."""
        return self._checked()(credential)


def read(path: Path) -> dict[str | None, PyJWK]:
    """The keys of a JWKS that may sign, by their `kid`; raises OSError or ValueError.

    Such a file may hold keys of other kinds too; those are left out.
    """
    document = json.loads(path.read_bytes())
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError('it must be a JWKS: {"keys": [...]}')
    keys = [key for each in listed if (key := _signing_key(each)) is not None]
    if not keys:
        raise ValueError(f"it holds no public key for {', '.join(ALGORITHMS)}")
    by_id = {key.key_id: key for key in keys}
    if len(by_id) < len(keys):
        raise ValueError("two keys have the same kid, or none")
    return by_id


def _signing_key(entry: Any) -> PyJWK | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    try:
        key = PyJWK(entry)
    except PyJWTError:
        return None
    return key if key.algorithm_name in ALGORITHMS else None


class _Checked:
    """One state of the file, with the tokens it has been found right for."""

    def __init__(
        self, keys: Mapping[str | None, PyJWK], terms: Terms, clock: Callable[[], float]
    ) -> None:
        self._keys = keys
        self._terms = terms
        self._clock = clock
        self._lock = Lock()
        self._known: LRUCache[bytes, tuple[float, Identity]] = LRUCache(MAX_REMEMBERED)

    def __call__(self, token: str) -> Identity:
        digest = sha256(token.encode()).digest()
        with self._lock:
            known = self._known.get(digest)
        if known is None:
            try:
                known = self._check(token)
            except _REFUSALS as error:
                _log.info("token_refused", reason=type(error).__name__)
                raise Unauthenticated(REFUSAL) from None
            with self._lock:
                self._known[digest] = known
        until, identity = known
        if self._clock() >= until:
            raise Unauthenticated(REFUSAL)
        return identity

    def _check(self, token: str) -> tuple[float, Identity]:
        """Until when it is valid, and whose it is; raises PyJWTError or ValueError."""
        key = self._key(jwt.get_unverified_header(token).get("kid"))
        terms = self._terms
        required = [*_REQUIRED, terms.tenants_claim, terms.role_claim]
        claims = jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],  # The key's own, whatever the token says.
            issuer=terms.issuer,
            audience=terms.audience,
            leeway=terms.leeway_s,
            options={"require": required, "enforce_minimum_key_length": True},
        )
        identity = Identity(
            shown(claims["sub"]),
            _tenants(claims[terms.tenants_claim]),
            Role(claims[terms.role_claim]),
        )
        return float(claims["exp"]) + terms.leeway_s, identity

    def _key(self, key_id: str | None) -> PyJWK:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if key_id is None or key_id not in self._keys:
            raise ValueError("no key has the token's kid")
        return self._keys[key_id]


def _tenants(claim: Any) -> frozenset[str]:
    """Of a claim that is one tenant's id, or a list of them; `*` is all."""
    names = [claim] if isinstance(claim, str) else claim
    if not isinstance(names, list) or not names or not all(map(_is_tenant, names)):
        raise ValueError("the claim names no tenants")
    return frozenset(names)


def _is_tenant(name: Any) -> bool:
    return isinstance(name, str) and (name == ANY_TENANT or is_name(name))
