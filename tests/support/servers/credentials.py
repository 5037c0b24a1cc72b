"""Keys and tokens for tests, valid and invalid."""

import base64
import hmac
import json
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from jwt.algorithms import ECAlgorithm

from hrag.server.auth import Role, api_keys

TENANT = "acme"
OTHER = "globex"
ISSUER = "https://issuer.test"
AUDIENCE = "hrag"
UNKNOWN_KEY = f"hrag_{'0' * 12}_{'A' * 43}"


def new_key(path: Path, *tenants: str, role: Role = Role.READ) -> str:
    return api_keys.create(path, tenants or (TENANT,), role, "", None)


def id_of(key: str) -> str:
    """Returns the id of an API key, which is a part of the key."""
    return key.split("_")[1]


def expired(path: Path, key: str) -> str:
    """Sets the key's expiry to a past date; returns the key."""
    document = json.loads(path.read_text("utf-8"))
    (line,) = (entry for entry in document["keys"] if entry["id"] == id_of(key))
    line["expires"] = "2026-01-01T00:00:00Z"
    path.write_text(json.dumps(document), "utf-8")
    return key


def altered(key: str) -> str:
    """Returns the key with its second-last character changed.

    Some bits of the last character are ignored, so a change of that character might change nothing.
    """
    return key[:-2] + ("A" if key[-2] != "A" else "B") + key[-1]


@dataclass(frozen=True)
class Issuer:
    """An issuer of tokens, with one signing key."""

    key_id: str
    private: Any

    @property
    def jwk(self) -> dict[str, Any]:
        public = ECAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        return {**public, "kid": self.key_id, "use": "sig", "alg": "ES256"}

    def token(self, **claims: Any) -> str:
        """Returns a valid token, except that `claims` replace its claims; None removes a claim."""
        payload = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "somebody",
            "exp": time.time() + 600,
            "tenants": [TENANT],
            "role": "read",
            **claims,
        }
        payload = {name: value for name, value in payload.items() if value is not None}
        return jwt.encode(payload, self.private, "ES256", {"kid": self.key_id})


def new_issuer(key_id: str = "one") -> Issuer:
    return Issuer(key_id, generate_private_key(SECP256R1()))


def write_jwks(path: Path, *issuers: Issuer) -> Path:
    path.write_text(json.dumps({"keys": [issuer.jwk for issuer in issuers]}), "utf-8")
    return path


def forged(token: str, algorithm: str, secret: bytes = b"") -> str:
    """Returns the token with another algorithm, signed with `secret`; unsigned if that is empty."""
    header, claims, _ = token.split(".")
    payload = {**json.loads(_decoded(header)), "alg": algorithm}
    begin = f"{_encoded(json.dumps(payload).encode())}.{claims}"
    signature = hmac.new(secret, begin.encode(), sha256).digest() if secret else b""
    return f"{begin}.{_encoded(signature)}"


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")
