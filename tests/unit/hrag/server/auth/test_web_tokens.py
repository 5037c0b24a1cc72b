"""JSON Web Tokens: claims, caching, signing keys."""

import base64
import json
import re
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from jwt.algorithms import OKPAlgorithm, RSAAlgorithm
from jwt.warnings import InsecureKeyLengthWarning
from structlog.testing import capture_logs

from hrag.errors import Unauthenticated
from hrag.server.auth import Identity, Role
from hrag.server.auth.web_tokens import TokenPolicy, WebTokens
from tests.support.servers.credentials import AUDIENCE, ISSUER, new_issuer, write_jwks
from tests.support.until import until

TERMS = TokenPolicy(ISSUER, AUDIENCE, 30.0, "tenants", "role")
ISSUED = new_issuer()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_jwks(tmp_path / "jwks.json", ISSUED)


def _refused(tokens: WebTokens, token: str) -> bool:
    try:
        tokens(token)
    except Unauthenticated:
        return True
    return False


def test_a_token_proves_its_subject_tenants_and_role(path):
    token = ISSUED.token(tenants=["acme", "globex"], role="write")
    expected = Identity("somebody", frozenset({"acme", "globex"}), Role.WRITE)
    assert WebTokens(path, TERMS)(token) == expected


def test_long_subjects_are_told_apart_and_none_writes_control_characters(path):
    verify = WebTokens(path, TERMS)
    long = [verify(ISSUED.token(sub=f"{'x' * 300}{end}")).credential for end in "ab"]
    assert long[0] != long[1]
    assert max(map(len, long)) < 300
    assert "\x1b" not in verify(ISSUED.token(sub="a\x1b[31mb")).credential


def test_claim_names_are_configurable(path):
    terms = TokenPolicy(ISSUER, AUDIENCE, 0, "https://acme/tenant", "https://acme/role")
    claims = {"https://acme/tenant": "acme", "https://acme/role": "admin"}
    token = ISSUED.token(tenants=None, role=None, **claims)
    assert WebTokens(path, terms)(token).role is Role.ADMIN
    assert _refused(WebTokens(path, TERMS), token)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": "soon"},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"exp": -1},
        {"nbf": time.time() + 100_000},
        {"iat": time.time() + 100_000},
        {"sub": None},
        {"sub": 7},
        {"sub": ["a"]},
        {"iss": None},
        {"iss": [ISSUER]},
        {"aud": None},
        {"aud": []},
        {"tenants": None},
        {"tenants": ""},
        {"tenants": ["acme", 7]},
        {"tenants": ["acme", "a/b"]},
        {"tenants": [["acme"]]},
        {"role": 7},
        {"role": ["admin"]},
        {"role": "ADMIN"},
        {"role": ""},
    ],
)
def test_tokens_with_invalid_claims_are_refused(path, claims):
    content = {"iss": ISSUER, "aud": AUDIENCE, "sub": "s", "exp": time.time() + 60}
    content = {**content, "tenants": "acme", "role": "read", **claims}
    payload = json.dumps(
        {name: value for name, value in content.items() if value is not None}
    ).encode()
    signed = jwt.PyJWS().encode(payload, ISSUED.private, "ES256", {"kid": ISSUED.key_id})
    assert _refused(WebTokens(path, TERMS), signed)


def _unsigned(header: bytes) -> str:
    return base64.urlsafe_b64encode(header).decode().rstrip("=") + ".e30.AAAA"


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "...",
        "x" * 1_000_000,
        _unsigned(b"[" * 5000),
        _unsigned(b"[]"),
        _unsigned(b"\xff"),
        _unsigned(b'{"alg": "ES256", "kid": ["one"]}'),
        _unsigned(b'{"alg": "ES256", "kid": "two"}'),
        _unsigned(b'{"alg": null, "kid": "one"}'),
        _unsigned(b'{"kid": "one"}'),
        _unsigned(b'{"alg": "ES256", "kid": "one", "crit": ["x"], "x": 1}'),
    ],
)
def test_malformed_tokens_are_refused(path, token):
    assert _refused(WebTokens(path, TERMS), token)


def test_rejected_tokens_do_not_flood_the_log(path):
    """Anybody may send invalid tokens, as many as they like."""
    tokens = WebTokens(path, TERMS)
    with capture_logs() as logs:
        assert all(_refused(tokens, f"forged.{number}.token") for number in range(200))
        until(lambda: _rejected(logs) >= 200)  # There are more if earlier tests caused some.
    assert len(logs) < 50


def _rejected(logs):
    """Returns the number of rejected tokens that the log reports."""
    return sum(line.get("count", 1) for line in logs if line["event"] == "token_rejected")


def test_the_leeway_allows_for_clock_skew(path):
    tokens = WebTokens(path, TERMS)
    assert tokens(ISSUED.token(exp=time.time() - 20))
    assert tokens(ISSUED.token(nbf=time.time() + 20))
    assert _refused(tokens, ISSUED.token(exp=time.time() - 40))
    assert _refused(
        WebTokens(path, TokenPolicy(ISSUER, AUDIENCE, 0, "tenants", "role")), ISSUED.token(exp=1)
    )


def test_a_cached_token_expires(path):
    now = [time.time()]
    tokens = WebTokens(path, TERMS, lambda: now[0])
    token = ISSUED.token(exp=now[0] + 60)
    assert tokens(token) == tokens(token)
    now[0] += 91
    assert _refused(tokens, token)


def test_a_signature_is_verified_once(path, monkeypatch):
    calls = []
    decode = jwt.decode
    monkeypatch.setattr(jwt, "decode", lambda *a, **k: calls.append(1) or decode(*a, **k))
    tokens = WebTokens(path, TERMS)
    token = ISSUED.token()
    assert [tokens(token) for _ in range(5)] == [tokens(token)] * 5
    assert len(calls) == 1


def test_removing_a_signing_key_invalidates_cached_tokens(path):
    tokens, successor = WebTokens(path, TERMS), new_issuer("two")
    old = ISSUED.token()
    assert tokens(old)
    write_jwks(path, successor)
    until = time.monotonic() + 2
    while not _refused(tokens, old):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert tokens(successor.token())


def test_a_token_without_kid_is_verified_with_the_only_key(path):
    claims = jwt.decode(ISSUED.token(), options={"verify_signature": False})
    token = jwt.encode(claims, ISSUED.private, "ES256")
    assert WebTokens(path, TERMS)(token)
    write_jwks(path, ISSUED, new_issuer("two"))
    assert _refused(WebTokens(path, TERMS), token)


def _other(private: Any, algorithm: str) -> str:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "s", "exp": time.time() + 60}
    claims |= {"tenants": "acme", "role": "read"}
    return jwt.encode(claims, private, algorithm, {"kid": "k"})


def test_rsa_and_ed25519_keys_are_accepted(path):
    of_rsa = rsa.generate_private_key(65537, 2048)
    of_ed = ed25519.Ed25519PrivateKey.generate()
    for private, kind, algorithm in (
        (of_rsa, RSAAlgorithm, "RS256"),
        (of_ed, OKPAlgorithm, "EdDSA"),
    ):
        jwk = {**kind.to_jwk(private.public_key(), as_dict=True), "kid": "k"}
        path.write_text(json.dumps({"keys": [{"kty": "oct", "k": "AAAA"}, jwk]}), "utf-8")
        assert WebTokens(path, TERMS)(_other(private, algorithm))
    path.write_text(json.dumps({"keys": [{**jwk, "use": "enc"}]}), "utf-8")
    with pytest.raises(ValueError, match="no public key for RS256, ES256, EdDSA"):
        WebTokens(path, TERMS)


def test_a_short_rsa_key_verifies_nothing(path):
    private = rsa.generate_private_key(65537, 1024)
    jwk = {**RSAAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": "k"}
    path.write_text(json.dumps({"keys": [jwk]}), "utf-8")
    with pytest.warns(InsecureKeyLengthWarning):
        token = _other(private, "RS256")
    assert _refused(WebTokens(path, TERMS), token)


def test_a_token_with_another_algorithm_than_its_key_is_refused(path):
    private = rsa.generate_private_key(65537, 2048)
    jwk = {**RSAAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": "k"}
    path.write_text(json.dumps({"keys": [jwk]}), "utf-8")
    assert _refused(WebTokens(path, TERMS), _other(private, "RS512"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "Expecting value"),
        ("[]", "must be a JWKS"),
        ('{"keys": {}}', "must be a JWKS"),
        ('{"keys": []}', "has no public key"),
        ('{"keys": [7, null, {}]}', "has no public key"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "one"}]}', "has no public key"),
        (json.dumps({"keys": [ISSUED.jwk, ISSUED.jwk]}), "the same kid"),
        (json.dumps({"keys": [{**ISSUED.jwk, "kid": ["one"]}]}), "has no public key"),
        (json.dumps({"keys": [{**ISSUED.jwk, "alg": ["EdDSA"]}]}), "has no public key"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_an_invalid_jwks_file_is_refused(path, content, message):
    path.write_text(content, "utf-8")
    with pytest.raises(ValueError, match=re.escape(message)):
        WebTokens(path, TERMS)
