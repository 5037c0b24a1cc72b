"""Verifies JSON Web Tokens (RFC 7519) with the public keys of their issuer.

The public keys are in a JWKS file (RFC 7517). Only asymmetric signatures are accepted, so a party
that can verify tokens cannot issue tokens. A token must have an expiry (`exp`) and a subject
(`sub`), and it must come from the configured issuer for the configured audience. Verified tokens
are cached by their digest until they expire, because verifying a signature takes longer than
starting a search. A change of the JWKS file empties the cache, so revoking a signing key takes
effect immediately. A single token cannot be revoked, so issuers should give tokens short lifetimes.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

import jwt
import structlog
from cachetools import LRUCache
from jwt import PyJWK, PyJWTError

from hrag.host.watched_file import WatchedFile
from hrag.observe.refusal_limiter import Refusal, RefusalLimiter
from hrag.server.auth import REFUSAL, Identity, Role, is_tenant_pattern
from hrag.server.auth.token_claims import check_form
from hrag.text.plain_text import printable
from hrag.values.errors import Unauthenticated

ALGORITHMS = ("RS256", "ES256", "EdDSA")
MAX_CACHED_TOKENS = 10_000  # A cache with so many verified tokens needs about 5 MB.

_REQUIRED = ("exp", "iss", "aud", "sub")
_MAX_SUBJECT_CHARS = 255  # The maximum length of a subject in OpenID Connect Core 1.0.

# Each of these errors means that a token is invalid. Anybody may send a token, so a number in the
# token may be too large to convert (OverflowError), and the token's JSON may be nested too deep
# (RecursionError).
_VERIFICATION_ERRORS = (PyJWTError, ValueError, OverflowError, RecursionError)

_log = structlog.get_logger()


def _log_counts(counts: Mapping[Refusal, int]) -> None:
    for refusal, count in counts.items():
        _log.info("token_rejected", reason=refusal.reason, count=count)


_LIMITER = RefusalLimiter(_log_counts)


@dataclass(frozen=True, slots=True)
class TokenPolicy:
    """The requirements for tokens.

    `issuer` and `audience` are the values that a token must have in its claims `iss` and `aud`.
    `tenants_claim` and `role_claim` are the names of the claims with the tenants and the role.

    The clocks of the issuer and of this machine may differ by `leeway_s` seconds. So a token may be
    used until `leeway_s` seconds after its expiry (`exp`). If it has the claims `nbf` (not before)
    or `iat` (issued at), it may be used from `leeway_s` seconds before these times.
    """

    issuer: str
    audience: str
    leeway_s: float
    tenants_claim: str
    role_claim: str


class WebTokens:
    """Verifies tokens with the keys of a JWKS file. The file is reloaded when it changes.

    Thread-safe.
    """

    def __init__(
        self, path: Path, policy: TokenPolicy, clock: Callable[[], float] = time.time
    ) -> None:
        """Reads the JWKS file.

        Raises OSError if the file cannot be read, and ValueError if it is invalid.
        """

        def parse(contents: Sequence[bytes]) -> _Verifier:
            return _Verifier(parse_jwks(contents[0]), policy, clock)

        self._verifier = WatchedFile("HRAG_JWT_JWKS_FILE", (path,), parse)

    def __call__(self, credential: str) -> Identity:
        """Returns the identity of a valid token, else raises Unauthenticated."""
        return self._verifier()(credential)


def parse_jwks(file: bytes) -> dict[str | None, PyJWK]:
    """Returns a dictionary from `kid` (key id) to signing key; skips keys that are not usable.

    `file` is the content of a JWKS file. Raises ValueError if it is invalid or has no usable key.
    """
    try:
        document = json.loads(file)
    except RecursionError:
        raise ValueError("the file is nested too deep") from None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError('the file must be a JWKS: {"keys": [...]}')
    keys = [key for entry in listed if (key := _signing_key(entry)) is not None]
    if not keys:
        raise ValueError(f"the file has no public key for {', '.join(ALGORITHMS)}")
    by_id = {key.key_id: key for key in keys}
    if len(by_id) < len(keys):
        raise ValueError("two keys have the same kid, or no kid")
    return by_id


def _signing_key(entry: Any) -> PyJWK | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    if not isinstance(entry.get("kid", ""), str):
        return None
    try:
        key = PyJWK(entry)
    except (PyJWTError, TypeError):
        # A TypeError means that the algorithm or the key type is not a string. Keys that cannot be
        # used are skipped.
        return None
    return key if key.algorithm_name in ALGORITHMS else None


class _Verifier:
    """Verifies tokens with the keys of one version of the JWKS file, and caches verified tokens."""

    def __init__(
        self, keys: Mapping[str | None, PyJWK], policy: TokenPolicy, clock: Callable[[], float]
    ) -> None:
        self._keys = keys
        self._policy = policy
        self._clock = clock
        self._lock = Lock()
        self._cache: LRUCache[bytes, tuple[float, Identity]] = LRUCache(MAX_CACHED_TOKENS)

    def __call__(self, token: str) -> Identity:
        digest = sha256(token.encode()).digest()
        with self._lock:
            known = self._cache.get(digest)
        if known is None:
            try:
                known = self._verify(token)
            except _VERIFICATION_ERRORS as error:
                reason = type(error).__name__
                if _LIMITER.allows(Refusal(reason, "", "")):
                    _log.info("token_rejected", reason=reason)
                raise Unauthenticated(REFUSAL) from None
            with self._lock:
                self._cache[digest] = known
        until, identity = known
        if self._clock() >= until:
            raise Unauthenticated(REFUSAL)
        return identity

    def _verify(self, token: str) -> tuple[float, Identity]:
        """Returns the expiry (Unix time in seconds, with leeway) and the identity of a token.

        Raises one of _VERIFICATION_ERRORS if the token is invalid.
        """
        key = self._key(jwt.get_unverified_header(token).get("kid"))
        policy = self._policy
        required = [*_REQUIRED, policy.tenants_claim, policy.role_claim]
        claims = jwt.decode(
            token,
            key,
            # The algorithm of the key is used, because the algorithm in the token is not trusted.
            algorithms=[key.algorithm_name],
            issuer=policy.issuer,
            audience=policy.audience,
            leeway=policy.leeway_s,
            options={"require": required, "enforce_minimum_key_length": True},
        )
        check_form(token)
        identity = Identity(
            _subject(claims["sub"]),
            _tenants(claims[policy.tenants_claim]),
            Role(claims[policy.role_claim]),
        )
        return float(claims["exp"]) + policy.leeway_s, identity

    def _key(self, key_id: str | None) -> PyJWK:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if key_id is None or key_id not in self._keys:
            raise ValueError("no key has the token's kid")
        return self._keys[key_id]


def _subject(claim: str) -> str:
    """Returns the subject of a token as printable text, which identifies the caller in logs.

    A subject that is too long is cut, and characters that cannot be printed are replaced. In both
    cases, a digest of the whole subject is appended, so that different subjects remain different.
    """
    shown = printable(claim[:_MAX_SUBJECT_CHARS])
    if shown == claim:
        return claim
    return f"{shown}… (sha256 {sha256(claim.encode()).hexdigest()[:16]})"


def _tenants(claim: Any) -> frozenset[str]:
    """Returns the tenants that a claim of a token names.

    The claim must be a tenant id or a list of tenant ids. The id `*` means all tenants. Raises
    ValueError if the claim has any other value.
    """
    names = [claim] if isinstance(claim, str) else claim
    if not isinstance(names, list) or not names or not all(map(_is_tenant, names)):
        raise ValueError("the claim for tenants is neither a tenant id nor a list of tenant ids")
    return frozenset(names)


def _is_tenant(name: Any) -> bool:
    return isinstance(name, str) and is_tenant_pattern(name)
