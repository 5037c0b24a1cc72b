"""JSON Web Tokens are verified by their claims and signatures, and the results are cached."""

import base64
import json
import re
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.warnings import InsecureKeyLengthWarning
from structlog.testing import capture_logs

from hrag.errors import Unauthenticated
from hrag.server.auth import Identity, Role
from hrag.server.auth.web_tokens import TokenPolicy, WebTokens
from tests.support.servers.credentials import AUDIENCE, ISSUER, new_issuer, write_jwks
from tests.support.until import until

POLICY = TokenPolicy(ISSUER, AUDIENCE, 30.0, "tenants", "role")
SIGNER = new_issuer()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_jwks(tmp_path / "jwks.json", SIGNER)


def _is_refused(tokens: WebTokens, token: str) -> bool:
    try:
        tokens(token)
    except Unauthenticated:
        return True
    return False


def test_a_token_is_verified_as_its_subject_tenants_and_role(path):
    token = SIGNER.token(tenants=["acme", "globex"], role="write")
    expected = Identity("somebody", frozenset({"acme", "globex"}), Role.WRITE)
    assert WebTokens(path, POLICY)(token) == expected


def test_long_subjects_stay_distinct_and_control_characters_are_escaped(path):
    verify = WebTokens(path, POLICY)
    first, second = (verify(SIGNER.token(sub=f"{'x' * 300}{end}")).credential for end in "ab")
    assert first != second
    assert max(len(first), len(second)) < 300
    red, bell = (verify(SIGNER.token(sub=f"a{end}b")).credential for end in ("\x1b", "\x07"))
    assert "\x1b" not in red
    assert red != bell


def test_claim_names_are_configurable(path):
    policy = TokenPolicy(ISSUER, AUDIENCE, 0, "https://acme/tenant", "https://acme/role")
    claims = {"https://acme/tenant": "acme", "https://acme/role": "admin"}
    token = SIGNER.token(tenants=None, role=None, **claims)
    assert WebTokens(path, policy)(token).role is Role.ADMIN
    assert _is_refused(WebTokens(path, POLICY), token)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": "soon"},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"exp": -1},
        {"exp": "9999999999"},
        {"exp": True},
        {"exp": 1e300},
        {"exp": 10**30},
        {"exp": [9_999_999_999]},
        {"exp": {"a": 9_999_999_999}},
        {"nbf": "1"},
        {"nbf": False},
        {"nbf": -1},
        {"nbf": float("-inf")},
        {"iat": "1"},
        {"iat": True},
        {"iat": -1e300},
        {"iat": {}},
        {"sub": ""},
        {"sub": " \t\u00a0"},
        {"sub": "\ud800"},
        {"sub": {}},
        {"aud": ""},
        {"aud": [AUDIENCE, 7]},
        {"aud": {AUDIENCE: 1}},
        {"iss": ""},
        {"iss": {"a": ISSUER}},
        {"tenants": []},
        {"tenants": {"acme": 1}},
        {"tenants": "acme,globex"},
        {"tenants": "x" * 65},
        {"role": True},
        {"role": {"a": "read"}},
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
    signed = jwt.PyJWS().encode(payload, SIGNER.private, "ES256", {"kid": SIGNER.key_id})
    assert _is_refused(WebTokens(path, POLICY), signed)


def _signed(payload: str, header: str = "") -> str:
    """Returns a token with this JSON as its payload and as its header, with a valid signature."""
    header = header or f'{{"alg": "ES256", "kid": "{SIGNER.key_id}"}}'
    parts = [base64.urlsafe_b64encode(part.encode()).rstrip(b"=") for part in (header, payload)]
    signature = ECAlgorithm(ECAlgorithm.SHA256).sign(b".".join(parts), SIGNER.private)
    return b".".join((*parts, base64.urlsafe_b64encode(signature).rstrip(b"="))).decode()


_PAYLOAD = json.dumps(
    {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "s",
        "exp": 9_999_999_999,
        "tenants": "acme",
        "role": "read",
        "extra": {"a": 1},
    }
)


def test_tokens_whose_json_has_a_name_twice_are_refused(path):
    """Another reader of the token might use the other one of the two values."""
    tokens = WebTokens(path, POLICY)
    assert tokens(_signed(_PAYLOAD)).tenants == {"acme"}
    for name in ("iss", "aud", "sub", "exp", "tenants", "role", "extra"):
        valid = json.dumps({name: json.loads(_PAYLOAD)[name]})[1:-1]
        assert _is_refused(tokens, _signed(f"{_PAYLOAD[:-1]}, {valid}}}"))
    assert _is_refused(tokens, _signed(_PAYLOAD.replace('"a": 1', '"a": 1, "a": 2')))
    for header in ('"alg": "ES256", "alg": "ES256"', '"kid": "two", "alg": "ES256"'):
        assert _is_refused(tokens, _signed(_PAYLOAD, f'{{{header}, "kid": "one"}}'))
    assert _is_refused(tokens, _signed("[]"))
    assert _is_refused(tokens, _signed(f"{_PAYLOAD} {{}}"))
    assert _is_refused(tokens, _signed(_PAYLOAD.replace("9999999999", "9" * 5000)))
    assert _is_refused(tokens, _signed(_PAYLOAD.replace('{"a": 1}', "[" * 5000 + "]" * 5000)))


_TIMES = st.one_of(
    st.sampled_from([0, 1, time.time() + 900, 2e9, 253_402_300_800, 10**40, 1e300]),
    st.sampled_from([-1, True, False, "2000000000", "", float("nan"), float("inf"), [], {}]),
)
_TEXTS = st.one_of(
    st.sampled_from([ISSUER, AUDIENCE, "acme", "*", "read", "admin", "", " ", "a/b", "x" * 300]),
    st.sampled_from([7, True, [], {}, [AUDIENCE], ["acme", "globex"], ["acme", ""], [["a"]]]),
)
_CLAIMS = {
    "iss": ISSUER,
    "aud": AUDIENCE,
    "sub": "s",
    "exp": 2e9,
    "tenants": "acme",
    "role": "read",
}


def _is_valid(claims: dict[str, Any], now: float) -> bool:
    """Says independently of the code which tokens are valid; the leeway is 30 s."""

    def is_time(name: str) -> bool:
        return type(claims[name]) in (int, float) and 0 <= claims[name] < 253_402_300_800

    tenants = claims["tenants"] if isinstance(claims["tenants"], list) else [claims["tenants"]]
    return (
        claims["iss"] == ISSUER
        and claims["aud"] in (AUDIENCE, [AUDIENCE])
        and isinstance(claims["sub"], str)
        and bool(claims["sub"].strip())
        and is_time("exp")
        and claims["exp"] > now - 30
        and all(
            is_time(name) and claims[name] <= now + 30 for name in claims.keys() & {"nbf", "iat"}
        )
        and bool(tenants)
        and all(tenant in ("acme", "globex", "*", "read", "admin", AUDIENCE) for tenant in tenants)
        and claims["role"] in ("read", "write", "admin")
    )


_CHANGE = st.tuples(st.sampled_from(("iss", "aud", "sub", "tenants", "role")), _TEXTS) | st.tuples(
    st.sampled_from(("exp", "nbf", "iat")), _TIMES
)


@given(changes=st.lists(_CHANGE, min_size=1, max_size=2))
def test_exactly_the_tokens_with_valid_claims_are_accepted(tokens, changes):
    claims = {**_CLAIMS, **dict(changes)}
    token = _signed(json.dumps(claims))
    if _is_refused(tokens, token):
        assert not _is_valid(claims, time.time())
        return
    assert _is_valid(claims, time.time())
    identity = tokens(token)
    assert identity.credential.strip()
    assert identity.tenants


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> WebTokens:
    return WebTokens(write_jwks(tmp_path_factory.mktemp("keys") / "jwks.json", SIGNER), POLICY)


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
    assert _is_refused(WebTokens(path, POLICY), token)


def test_rejected_tokens_do_not_flood_the_log(path):
    """Anybody may send any number of invalid tokens."""
    tokens = WebTokens(path, POLICY)
    with capture_logs() as logs:
        assert all(_is_refused(tokens, f"forged.{number}.token") for number in range(200))
        # Rejected tokens of earlier tests may be counted too.
        until(lambda: _rejected_tokens(logs) >= 200)
    assert len(logs) < 50


def _rejected_tokens(logs):
    """Returns the count of rejected tokens that the log reports."""
    return sum(line.get("count", 1) for line in logs if line["event"] == "token_rejected")


def test_the_leeway_allows_for_clock_skew(path):
    tokens = WebTokens(path, POLICY)
    assert tokens(SIGNER.token(exp=time.time() - 5))
    assert tokens(SIGNER.token(nbf=time.time() + 20))
    assert _is_refused(tokens, SIGNER.token(exp=time.time() - 40))
    assert _is_refused(
        WebTokens(path, TokenPolicy(ISSUER, AUDIENCE, 0, "tenants", "role")),
        SIGNER.token(exp=1),
    )


def test_a_cached_token_expires(path):
    now = [time.time()]
    tokens = WebTokens(path, POLICY, lambda: now[0])
    token = SIGNER.token(exp=now[0] + 60)
    assert tokens(token) == tokens(token)
    now[0] += 91
    assert _is_refused(tokens, token)


def test_a_signature_is_verified_once(path, monkeypatch):
    calls = []
    decode = jwt.decode
    monkeypatch.setattr(jwt, "decode", lambda *a, **k: calls.append(1) or decode(*a, **k))
    tokens = WebTokens(path, POLICY)
    token = SIGNER.token()
    assert [tokens(token) for _ in range(5)] == [tokens(token)] * 5
    assert len(calls) == 1


def test_removing_a_signing_key_invalidates_cached_tokens(path):
    tokens, successor = WebTokens(path, POLICY), new_issuer("two")
    old = SIGNER.token()
    assert tokens(old)
    write_jwks(path, successor)
    until(lambda: _is_refused(tokens, old))
    assert tokens(successor.token())


def test_a_token_without_a_key_id_is_verified_with_the_only_key(path):
    claims = jwt.decode(SIGNER.token(), options={"verify_signature": False})
    token = jwt.encode(claims, SIGNER.private, "ES256")
    assert WebTokens(path, POLICY)(token)
    write_jwks(path, SIGNER, new_issuer("two"))
    assert _is_refused(WebTokens(path, POLICY), token)


def _token_signed_with(private: Any, algorithm: str) -> str:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "s", "exp": time.time() + 60}
    claims |= {"tenants": "acme", "role": "read"}
    return jwt.encode(claims, private, algorithm, {"kid": "k"})


def test_rsa_and_ed25519_keys_are_accepted(path):
    rsa_key = rsa.generate_private_key(65537, 2048)
    ed25519_key = ed25519.Ed25519PrivateKey.generate()
    for private, kind, algorithm in (
        (rsa_key, RSAAlgorithm, "RS256"),
        (ed25519_key, OKPAlgorithm, "EdDSA"),
    ):
        jwk = {**kind.to_jwk(private.public_key(), as_dict=True), "kid": "k"}
        path.write_text(json.dumps({"keys": [{"kty": "oct", "k": "AAAA"}, jwk]}), "utf-8")
        assert WebTokens(path, POLICY)(_token_signed_with(private, algorithm))
    path.write_text(json.dumps({"keys": [{**jwk, "use": "enc"}]}), "utf-8")
    with pytest.raises(ValueError, match="no public key for RS256, ES256, EdDSA"):
        WebTokens(path, POLICY)


def test_tokens_signed_with_a_short_rsa_key_are_refused(path):
    private = rsa.generate_private_key(65537, 1024)
    jwk = {**RSAAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": "k"}
    path.write_text(json.dumps({"keys": [jwk]}), "utf-8")
    with pytest.warns(InsecureKeyLengthWarning):
        token = _token_signed_with(private, "RS256")
    assert _is_refused(WebTokens(path, POLICY), token)


def test_a_token_with_another_algorithm_than_its_key_is_refused(path):
    private = rsa.generate_private_key(65537, 2048)
    jwk = {**RSAAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": "k"}
    path.write_text(json.dumps({"keys": [jwk]}), "utf-8")
    assert _is_refused(WebTokens(path, POLICY), _token_signed_with(private, "RS512"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "Expecting value"),
        ("[]", "must be a JWKS"),
        ('{"keys": {}}', "must be a JWKS"),
        ('{"keys": []}', "has no public key"),
        ('{"keys": [7, null, {}]}', "has no public key"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "one"}]}', "has no public key"),
        (json.dumps({"keys": [SIGNER.jwk, SIGNER.jwk]}), "the same kid"),
        (json.dumps({"keys": [{**SIGNER.jwk, "kid": ["one"]}]}), "has no public key"),
        (json.dumps({"keys": [{**SIGNER.jwk, "alg": ["EdDSA"]}]}), "has no public key"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_an_invalid_jwks_file_is_refused(path, content, message):
    path.write_text(content, "utf-8")
    with pytest.raises(ValueError, match=re.escape(message)):
        WebTokens(path, POLICY)
