"""Reads the metadata, the deadline and the content type of a call from a request's headers.

The gateway passes only the credential, the request id and the trace context to the services. No
other header is passed to the services.
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
    """Returns the gRPC metadata of the calls that the gateway makes to answer the request.

    Raises InvalidArgument if a header occurs twice or contains other characters than visible ASCII
    and spaces.
    """
    entries = [(REQUEST_ID, request.state.request_id)]
    for name in _PASSED:
        entries += [
            (name, _require_visible(name, value)) for value in request.headers.getlist(name)
        ]
    names = [name for name, _ in entries]
    for name in names:
        # If a header occurs twice, a proxy in front of the gateway may have checked one value, and
        # a service could use the other value.
        if names.count(name) > 1:
            raise InvalidArgument(f"the header {name} occurs twice; send it once", field=name)
    return entries


def caller(request: Request) -> str:
    """Returns the text that identifies the caller: its credential, or an empty text.

    If the services treat two spellings of the header `authorization` as the same credential, for
    example `Bearer x` and `bearer x`, this function returns the same text for both spellings.
    """
    scheme, _, credential = request.headers.get("authorization", "").partition(" ")
    return f"{scheme.lower()} {credential.strip()}".strip()


def caller_or_address(request: Request) -> str:
    """Returns the text that identifies the caller: its credential or, without one, its address."""
    return caller(request) or (request.client.host if request.client else "")


def _require_visible(name: str, value: str) -> str:
    if not (value.isascii() and value.isprintable()):
        raise InvalidArgument(
            f"the header {name} has a character that is neither visible ASCII nor a space",
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
    deadline has passed, for example while the body of the request was arriving.

    `time_left_s` itself raises InvalidArgument if the header connect-timeout-ms is malformed, and
    DeadlineExceeded if the header is 0.
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
                "had arrived and its credential was accepted"
            )
        return left_s

    return remaining_s


def media_type(request: Request) -> str:
    """Returns the media type of the body, in lower case and without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
