"""What the headers of a request say about its call: its metadata, its deadline, its content.

Of the headers the services get the credential, the request id and the trace context, as the SDK
sends them, and nothing else.
"""

import re
import time
from collections.abc import Callable

from starlette.requests import Request

from hrag.gateway.services.channels import Metadata
from hrag.server.calls.request_id import REQUEST_ID
from hrag.values.errors import DeadlineExceeded, InvalidArgument
from hrag.values.ids import quoted

_TIMEOUT = re.compile(r"[0-9]{1,10}")
_VERSION = "1"
_PASSED = ("authorization", "traceparent", "tracestate")


def metadata(request: Request) -> Metadata:
    """Returns the metadata of the calls that the request causes; raises InvalidArgument."""
    found = [(REQUEST_ID, request.state.request_id)]
    for name in _PASSED:
        found += [(name, _visible(name, value)) for value in request.headers.getlist(name)]
    names = [name for name, _ in found]
    for name in names:
        # A proxy in front may have looked at the other of both.
        if names.count(name) > 1:
            raise InvalidArgument(f"the header {name} is there twice", field=name)
    return found


def caller(request: Request) -> str:
    """Returns the caller in whose name the request is sent: its credential, or nothing.

    Spellings that the services take for the same credential are the same caller.
    """
    scheme, _, credential = request.headers.get("authorization", "").partition(" ")
    return f"{scheme.lower()} {credential.strip()}".strip()


def _visible(name: str, value: str) -> str:
    if not (value.isascii() and value.isprintable()):
        raise InvalidArgument(
            f"the header {name} has characters other than visible ones of ASCII and spaces",
            field=name,
        )
    return value


def check_version(request: Request) -> None:
    """Raises InvalidArgument for a version of the Connect protocol other than 1."""
    version = request.headers.get("connect-protocol-version", _VERSION)
    if version != _VERSION:
        raise InvalidArgument(
            f"the header connect-protocol-version is {quoted(version)}; it must be 1",
            field="connect-protocol-version",
        )


def time_left_s(request: Request) -> Callable[[], float | None]:
    """Returns what says how much of the caller's time is left from now on, in seconds.

    It says None if the request names no time, and raises DeadlineExceeded if none is left, such
    as where the body took all. Raises InvalidArgument, and DeadlineExceeded for no time.
    """
    given = request.headers.get("connect-timeout-ms")
    if given is None:
        return lambda: None
    if not _TIMEOUT.fullmatch(given):
        raise InvalidArgument(
            f"the header connect-timeout-ms is {quoted(given)}; it must be a whole number of "
            "milliseconds with at most 10 digits",
            field="connect-timeout-ms",
        )
    if not int(given):
        raise DeadlineExceeded("the header connect-timeout-ms is 0: no time is left")
    until_s = time.monotonic() + int(given) / 1000

    def left() -> float:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise DeadlineExceeded(
                f"the {given} ms of the header connect-timeout-ms passed before the request was "
                "there and its caller known"
            )
        return left_s

    return left


def media_type(request: Request) -> str:
    """Returns the type of the content, in lower case, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
