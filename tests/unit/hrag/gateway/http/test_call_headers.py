"""The credential in the headers of a request identifies its caller."""

import pytest
from starlette.requests import Request

from hrag.gateway.http.call_headers import caller


def _caller(*authorization: str) -> str:
    headers = [(b"authorization", value.encode()) for value in authorization]
    return caller(Request({"type": "http", "headers": headers}))


@pytest.mark.parametrize("spelling", ["bearer Key", "BEARER  Key", "Bearer Key "])
def test_a_credential_is_the_same_caller_in_every_spelling(spelling: str) -> None:
    assert _caller(spelling) == _caller("Bearer Key")


@pytest.mark.parametrize("credential", ["Bearer key", "Bearer Ke y", "Basic Key", "Key"])
def test_different_credentials_are_different_callers(credential: str) -> None:
    assert _caller(credential) not in ("", _caller("Bearer Key"))


def test_without_a_credential_there_is_no_caller() -> None:
    assert _caller() == _caller("") == ""
