"""Reads the metadata, the deadline and the content type of a call from a request's headers.

The services receive only the credential, the request id and the trace context, as from the SDK.
No other header is passed to them.
"""

import re
import time
from collections.abc import Callable

from starlette.requests import Request

from hrag.gateway.services.channels import Metadata
from hrag.values.errors import DeadlineExceeded, InvalidArgument
from hrag.values.ids import quoted
from hrag.wire.stream_admission import REQUEST_ID

_TIMEOUT = re.compile(r"[0-9]{1,10}")
_VERSION = "1"
# Headers that are passed to the services unchanged.
_PASSED = ("authorization", "traceparent", "tracestate")


def metadata(request: Request) -> Metadata:
    """Returns the gRPC metadata of the calls that the request causes; raises InvalidArgument."""
    entries = [(REQUEST_ID, request.state.request_id)]
    for name in _PASSED:
        entries += [(name, _visible(name, value)) for value in request.headers.getlist(name)]
    names = [name for name, _ in entries]
    for name in names:
        # If a header is there twice, a proxy in front of the gateway may have checked the other
        # value.
        if names.count(name) > 1:
            raise InvalidArgument(f"the header {name} is there twice", field=name)
    return entries


def caller(request: Request) -> str:
    """Returns the text that identifies the caller: its credential, or an empty text.

    Spellings of a credential that are the same for the services return the same text.
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
    """Returns a function that returns the seconds until the caller's deadline.

    The function returns None if the request has no deadline. It raises DeadlineExceeded if the
    deadline has passed, for example because the body needed all the time.

    Raises InvalidArgument for a malformed header, and DeadlineExceeded for a time of 0.
    """
    timeout_ms = request.headers.get("connect-timeout-ms")
    if timeout_ms is None:
        return lambda: None
    if not _TIMEOUT.fullmatch(timeout_ms):
        raise InvalidArgument(
            f"the header connect-timeout-ms is {quoted(timeout_ms)}; it must be a whole number of "
            "milliseconds with at most 10 digits",
            field="connect-timeout-ms",
        )
    if not int(timeout_ms):
        raise DeadlineExceeded("the header connect-timeout-ms is 0: no time is left")
    until_s = time.monotonic() + int(timeout_ms) / 1000

    def remaining_s() -> float:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise DeadlineExceeded(
                f"the {timeout_ms} ms of the header connect-timeout-ms passed before the request "
                "had arrived and its caller was known"
            )
        return left_s

    return remaining_s


def media_type(request: Request) -> str:
    """Returns the media type of the body, in lower case and without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
