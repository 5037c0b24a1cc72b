"""`hrag keys` prints a new key once, lists keys without secrets, and refuses invalid options."""

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.errors import Unauthenticated
from hrag.server.auth import Role
from hrag.server.auth.api_keys import ApiKeys
from tests.support.servers.credentials import expired, id_of, new_key


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def _run(path: Path, *arguments: str, **settings: str):
    env = {"NO_COLOR": "1", "COLUMNS": "140", "HRAG_API_KEYS_FILE": str(path), **settings}
    return CliRunner().invoke(app, ["keys", *arguments], env=env)


@pytest.mark.parametrize("command", ["create", "list", "revoke"])
def test_help_of_each_command_has_an_example(path, command):
    assert f"hrag keys {command}" in _run(path, command, "--help").output


def test_standard_output_gets_only_the_key(path):
    result = _run(path, "create", "--tenant", "a", "--tenant", "b", "--role", "write")
    assert (result.exit_code, result.stderr.count("\n"), result.stdout.count("\n")) == (0, 1, 1)
    principal = ApiKeys(path)(result.stdout.strip())
    assert (principal.tenants, principal.role) == (frozenset({"a", "b"}), Role.WRITE)


def test_creation_and_revocation_are_audited_without_the_key(path, tmp_path):
    audit_file = tmp_path / "audit.log"
    key = _run(path, "create", "--tenant", "a", HRAG_AUDIT_FILE=str(audit_file)).stdout.strip()
    _run(path, "revoke", id_of(key), HRAG_AUDIT_FILE=str(audit_file))
    assert _run(path, "revoke", key, HRAG_AUDIT_FILE=str(audit_file)).exit_code == 1
    text = audit_file.read_text()
    assert key.split("_", 2)[2] not in text
    entries = [json.loads(line) for line in text.splitlines()]
    recorded = [(entry["method"], entry["outcome"], entry.get("key")) for entry in entries]
    key_id = id_of(key)
    assert recorded == [
        ("keys create", "OK", key_id),
        ("keys revoke", "OK", key_id),
        ("keys revoke", "FAILED", None),
    ]
    assert stat.S_IMODE(audit_file.stat().st_mode) == 0o600


def test_no_key_is_created_if_the_audit_log_cannot_be_written(path, tmp_path):
    result = _run(path, "create", "--tenant", "a", HRAG_AUDIT_FILE=str(tmp_path / "no" / "file"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "HRAG_AUDIT_FILE" in result.stderr
    assert not path.exists()


def test_list_shows_states_and_no_key(path):
    keys = [new_key(path), expired(path, new_key(path)), new_key(path, "*", role=Role.ADMIN)]
    assert _run(path, "revoke", id_of(keys[0])).exit_code == 0
    table, document = _run(path, "list").stdout, _run(path, "list", "--json").stdout
    listed = {entry["id"]: entry for entry in json.loads(document)}
    states = [listed[id_of(key)]["state"] for key in keys]
    assert states == ["revoked", "expired", "valid"]
    assert all(id_of(key) in table for key in keys)
    assert not any(key.split("_", 2)[2] in table + document for key in keys)
    assert "sha256" not in document
    with pytest.raises(Unauthenticated):
        ApiKeys(path)(keys[0])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("create",), 2, "--tenant"),
        (("create", "--tenant", "a/b"), 1, "tenants.0"),
        (("create", "--tenant", "a", "--role", "root"), 2, "--role"),
        (("create", "--tenant", "a", "--days", "0"), 2, "--days"),
        (("create", "--tenant", "a", "--note", "x" * 201), 1, "at most 200"),
        (("list",), 1, "No such file"),
        (("revoke", "x"), 1, "No such file"),
        (("revoke",), 2, "ID"),
    ],
)
def test_errors_are_one_line(path, arguments, code, message):
    result = _run(path, *arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert not path.exists()


def test_the_error_says_that_the_folder_is_missing(path):
    result = _run(path.parent / "none" / "keys.json", "create", "--tenant", "a")
    assert result.exit_code == 1
    assert "No such file" in result.stderr


def test_a_note_cannot_control_the_terminal(path):
    _run(path, "create", "--tenant", "a", "--note", "\x1b]0;pwned\x07")
    assert "\x1b" not in _run(path, "list").stdout
