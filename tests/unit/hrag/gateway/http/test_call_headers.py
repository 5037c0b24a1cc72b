"""What headers say about a call."""

import pytest
from starlette.requests import Request

from hrag.gateway.http.call_headers import caller


def _caller(*authorization: str) -> str:
    headers = [(b"authorization", each.encode()) for each in authorization]
    return caller(Request({"type": "http", "headers": headers}))


@pytest.mark.parametrize("spelling", ["bearer Key", "BEARER  Key", "Bearer Key "])
def test_a_credential_is_one_caller_however_it_is_spelt(spelling: str) -> None:
    assert _caller(spelling) == _caller("Bearer Key")


@pytest.mark.parametrize("other", ["Bearer key", "Bearer Ke y", "Basic Key", "Key"])
def test_other_credentials_are_other_callers(other: str) -> None:
    assert _caller(other) not in ("", _caller("Bearer Key"))


def test_without_a_credential_there_is_no_caller() -> None:
    assert _caller() == _caller("") == ""
