"""Checks the form of a verified JSON Web Token, where PyJWT is lenient.

PyJWT accepts a time that is a string or a boolean, a subject that is empty, and an object that has
a name twice, of which it uses the last. A program that reads such a token differently would see
another token. So the form is checked strictly: a claim has the type of RFC 7519 or the token is
refused.
"""

import json
from collections.abc import Mapping
from typing import Any, NoReturn, cast

from jwt.utils import base64url_decode

_TIMES = ("exp", "nbf", "iat")
# The last second of the year 9999, after which there are no dates. RFC 7519 defines times as
# seconds since 1970.
_LAST_TIME_S = 253_402_300_799


class MalformedToken(ValueError):
    """The form of a token is not that of RFC 7519."""


def check_form(token: str) -> None:
    """Raises MalformedToken if the form of a token is not strictly that of RFC 7519.

    `token` must have been verified already. May also raise other subclasses of ValueError, and
    RecursionError for JSON that is nested too deep.
    """
    header, payload, _ = token.split(".")
    _read_object(header)
    claims = _read_object(payload)
    for name in _TIMES:
        if name in claims:
            _check_time(name, claims[name])
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject.strip():
        raise MalformedToken("the claim sub must be a text that is not blank")
    subject.encode()  # A surrogate without its pair raises UnicodeEncodeError.


def _read_object(segment: str) -> Mapping[str, Any]:
    value = json.loads(
        base64url_decode(segment), object_pairs_hook=_unique_names, parse_constant=_refuse
    )
    if not isinstance(value, dict):
        raise MalformedToken("a part of the token is not a JSON object")
    return value


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise MalformedToken("an object of the token has a name twice")
    return members


def _refuse(_constant: str) -> NoReturn:
    raise MalformedToken("JSON has neither NaN nor infinity")


def _check_time(name: str, value: object) -> None:
    # The type is compared, because a bool is an int in Python, but not a number in JSON.
    if type(value) not in (int, float) or not 0 <= cast("float", value) <= _LAST_TIME_S:
        raise MalformedToken(f"the claim {name} must be a number of seconds since 1970")
