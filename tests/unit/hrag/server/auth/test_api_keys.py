"""API keys are created, stored, verified and revoked."""

import errno
import gc
import hmac
import json
import os
import re
import stat
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hrag.errors import Unauthenticated
from hrag.server.auth import Identity, Role, api_keys
from hrag.server.auth.api_keys import ApiKeys
from tests.support.servers.credentials import UNKNOWN_KEY, altered, id_of, new_key

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may change the owner of a file"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def test_a_key_consists_of_an_id_and_256_random_bits(path):
    created = {new_key(path) for _ in range(20)}
    assert len(created) == 20
    assert all(re.fullmatch(r"hrag_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", key) for key in created)
    assert {key.id for key in api_keys.read(path)} == set(map(id_of, created))


def test_the_file_contains_only_hashes_and_has_mode_0600(path):
    key = new_key(path)
    secret = key.split("_", 2)[2]
    assert secret not in path.read_text("utf-8")
    assert sha256(secret.encode()).hexdigest() in path.read_text("utf-8")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_change_is_on_the_disk_before_it_is_confirmed(path, monkeypatch):
    """The new file is synced before it is renamed, and its folder is synced afterwards."""
    synced, fsync = [], os.fsync

    def record(descriptor: int) -> None:
        fsync(descriptor)
        status = os.fstat(descriptor)
        synced.append((stat.S_ISDIR(status.st_mode), status.st_size > 0, path.exists()))

    monkeypatch.setattr(os, "fsync", record)
    new_key(path)
    assert synced == [(False, True, False), (True, True, True)]


def test_replacing_the_file_keeps_its_mode(path):
    """A service of another user that cannot read the new file keeps accepting revoked keys."""
    key = new_key(path)
    path.chmod(0o640)
    api_keys.revoke(path, id_of(key))
    assert path.stat().st_mode & 0o777 == 0o640


@needs_root
def test_replacing_the_file_keeps_its_owner(path):
    new_key(path)
    os.chown(path, 10001, 10002)
    new_key(path)
    assert (path.stat().st_uid, path.stat().st_gid) == (10001, 10002)
    assert path.stat().st_mode & 0o777 == 0o600


@needs_root
def test_a_file_whose_owner_cannot_be_kept_is_not_replaced(path, monkeypatch):
    def fchown(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    key = new_key(path)
    os.chown(path, 10001, 10002)
    content = path.read_bytes()
    monkeypatch.setattr(os, "fchown", fchown)
    with pytest.raises(PermissionError):
        api_keys.revoke(path, id_of(key))
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_key_is_verified_as_its_id_tenants_and_role(path):
    key = new_key(path, "acme", "globex", role=Role.WRITE)
    expected = Identity(id_of(key), frozenset({"acme", "globex"}), Role.WRITE)
    assert ApiKeys(path)(key) == expected


@pytest.mark.parametrize(
    "change",
    [
        altered,
        lambda key: key[:-1],
        lambda key: f"{key}A",
        lambda key: f" {key}",
        lambda key: f"{key}\n",
        lambda key: key.upper(),
        lambda key: key.removeprefix("hrag_"),
        lambda key: f"hrag_{id_of(key)}_{'0' * 43}",
        lambda _: UNKNOWN_KEY,
        lambda _: "",
        lambda _: "é" * 60,
        lambda _: "x" * 1_000_000,
    ],
)
def test_any_other_credential_is_refused_with_the_same_message(path, change):
    key = new_key(path)
    verify = ApiKeys(path)
    with pytest.raises(Unauthenticated) as caught:
        verify(change(key))
    with pytest.raises(Unauthenticated) as unknown:
        verify(UNKNOWN_KEY)
    assert caught.value.message == unknown.value.message
    assert verify(key)


def test_the_hash_from_the_file_is_not_a_key(path):
    key = new_key(path)
    stored = api_keys.read(path)[0].sha256
    with pytest.raises(Unauthenticated):
        ApiKeys(path)(f"hrag_{id_of(key)}_{stored[:43]}")


def test_a_key_expires(path):
    key = api_keys.create(path, ("acme",), Role.READ, "", timedelta(days=1))
    now = time.time()
    clock = [now]
    verify = ApiKeys(path, lambda: clock[0])
    assert verify(key)
    clock[0] = now + 86_401
    with pytest.raises(Unauthenticated):
        verify(key)


def test_a_revoked_key_stays_listed_and_revoking_again_changes_nothing(path):
    key, other = new_key(path), new_key(path)
    first = api_keys.revoke(path, id_of(key))
    assert first.revoked is not None
    assert api_keys.revoke(path, id_of(key)) == first
    verify = ApiKeys(path)
    assert verify(other)
    with pytest.raises(Unauthenticated):
        verify(key)
    with pytest.raises(ValueError, match="there is no key with the id 'nobody'"):
        api_keys.revoke(path, "nobody")


def test_concurrently_created_keys_are_all_stored(path):
    with ThreadPoolExecutor(8) as threads:
        created = list(threads.map(lambda _: new_key(path), range(40)))
    assert {key.id for key in api_keys.read(path)} == set(map(id_of, created))


def test_a_symbolic_link_to_the_file_is_kept(path, tmp_path):
    link = tmp_path / "link.json"
    link.symlink_to(path.name)
    key = new_key(link)
    assert link.is_symlink()
    assert ApiKeys(path)(key)


@pytest.mark.parametrize(
    ("tenants", "note", "message"),
    [
        ((), "", "tenants"),
        (("",), "", "tenants.0: must be * for all tenants, or the id of one tenant: 1 to 64"),
        (("a", "ä"), "", "tenants.1"),
        (("x" * 65,), "", "tenants.0"),
        (tuple(f"t{number}" for number in range(1001)), "", "at most 1000"),
        (("a",), "x" * 201, "note: String should have at most 200"),
    ],
)
def test_no_key_is_created_with_invalid_values(path, tenants, note, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        api_keys.create(path, tenants, Role.READ, note, None)
    assert not path.exists()


def test_an_invalid_value_is_reported_as_one_problem(path):
    """If the only tenant of a list is invalid, the list is not also reported as too short."""
    with pytest.raises(ValueError, match=r"^tenants\.0: [^;]*$"):
        api_keys.create(path, ("b b",), Role.READ, "", None)


def _stored_key(**changed: object) -> dict[str, object]:
    stored_key = {
        "id": "0" * 12,
        "sha256": "0" * 64,
        "tenants": ["acme"],
        "role": "read",
        "created": "2026-01-01T00:00:00Z",
    }
    return {**stored_key, **changed}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Invalid JSON"),
        (b"\xff\xfe", "Invalid JSON"),
        (b"[]", "object"),
        (b"[" * 100_000, "Invalid JSON"),
        ([_stored_key(id="short")], "keys.0.id"),
        ([_stored_key(sha256="secret")], "keys.0.sha256"),
        ([_stored_key(tenants="acme")], "keys.0.tenants"),
        ([_stored_key(tenants=[])], "keys.0.tenants"),
        ([_stored_key(role="root")], "keys.0.role"),
        ([_stored_key(expires="soon")], "keys.0.expires"),
        ([_stored_key(revoked="2026-01-01T00:00:00")], "keys.0.revoked"),
        ([_stored_key(), _stored_key()], "two keys have the same id"),
    ],
)
def test_the_refusal_of_an_invalid_key_file_names_the_field(path, content, message):
    path.write_bytes(
        content if isinstance(content, bytes) else json.dumps({"keys": content}).encode()
    )
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        ApiKeys(path)
    assert "secret" not in str(caught.value)


def test_a_file_without_a_valid_key_is_logged(path):
    """A file without a valid key is allowed; every call is refused until there is a key."""
    path.write_text('{"keys": []}', "ascii")
    with capture_logs() as logs, pytest.raises(Unauthenticated):
        ApiKeys(path)(UNKNOWN_KEY)
    key = new_key(path)
    api_keys.revoke(path, id_of(key))
    with capture_logs() as logs_after_revocation:
        ApiKeys(path)
    for captured in (logs, logs_after_revocation):
        # A service of an earlier test may write audit lines meanwhile.
        lines = [line for line in captured if line["event"] != "audit"]
        assert [line["event"] for line in lines] == ["no_valid_api_key"]
        assert lines[0]["file"] == str(path)
    new_key(path)
    with capture_logs() as logs_with_a_valid_key:
        ApiKeys(path)
    assert [line for line in logs_with_a_valid_key if line["event"] != "audit"] == []


def test_secrets_are_compared_as_digests_in_constant_time_for_unknown_ids_too(path, monkeypatch):
    key = new_key(path)
    verify = ApiKeys(path)
    compared = []

    constant_time = hmac.compare_digest

    def compare(a: str, b: str) -> bool:
        compared.append((len(a), len(b)))
        return constant_time(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for credential in (altered(key), UNKNOWN_KEY):
        with pytest.raises(Unauthenticated):
            verify(credential)
    assert compared == [(64, 64), (64, 64)]


def test_verification_takes_the_same_time_for_known_and_unknown_ids(path):
    """Compares the median durations of interleaved verifications.

    A key with an unknown id is compared with a dummy entry. Without the dummy entry, its refusal
    would take half as long.
    """
    key = new_key(path)
    verify = ApiKeys(path)
    credentials = {
        "only the end is wrong": altered(key),
        "only the id is right": f"hrag_{id_of(key)}_{'0' * 43}",
        "the id is unknown": UNKNOWN_KEY,
    }
    durations_ns: dict[str, list[int]] = {kind: [] for kind in credentials}
    gc.disable()
    try:
        for _ in range(3000):
            for kind, credential in credentials.items():
                began = time.perf_counter_ns()
                with suppress(Unauthenticated):
                    verify(credential)
                durations_ns[kind].append(time.perf_counter_ns() - began)
    finally:
        gc.enable()
    medians = [statistics.median(times) for times in durations_ns.values()]
    assert max(medians) < 1.2 * min(medians)
