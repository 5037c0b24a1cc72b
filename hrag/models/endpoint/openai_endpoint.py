"""A client for an OpenAI-compatible endpoint: sends requests, retries them, translates errors.

The HTTP client of the OpenAI SDK is used. This module retries requests itself, because the SDK has
no deadlines. A request is retried after the statuses 408, 409, 429 and 5xx and after a lost
connection. The delay before a retry grows exponentially, or is the time in `Retry-After`. If the
caller has stopped waiting, the request is not retried. An attempt ends at its timeout or at the
caller's deadline, even if the reply arrives byte by byte. A reply of more than MAX_REPLY_BYTES is
not read to its end.

Redirects are not followed, because texts, and perhaps the key, would go to a host that no setting
names. Error messages never repeat the key, the request, or the endpoint's message, which may quote
the key or the request.
"""

import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import httpx2
from openai import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    DefaultHttpxClient,
    OpenAI,
    Timeout,
)

from hrag.models.endpoint.endpoint_access import EndpointAccess
from hrag.values.deadline import NEVER, Deadline
from hrag.values.errors import DeadlineExceeded, HragError
from hrag.values.ids import quoted

# The maximum size of a reply. It is enough for 512 embeddings of 4,096 dimensions with 32 bytes for
# each number. In JSON, a number has at most 26 bytes.
MAX_REPLY_BYTES = 64 << 20
# If a reply has an error status, at most this many bytes of its content are read. OpenAI's error
# code and the names of refused parameters in the content are used; the content is never shown.
MAX_ERROR_BYTES = 64 << 10

# The shortest timeout of a read. With a timeout of zero, even bytes that have already arrived could
# not be read.
_MIN_TIMEOUT_S = 0.001
# The time limit for opening a connection. A running host accepts connections quickly, even if it
# replies slowly.
_CONNECT_TIMEOUT_S = 5.0
_DELAYS_S = (0.5, 1.0, 2.0, 4.0)  # The delays before the first, second, third and fourth retry.
# A random part of up to this fraction is added to each delay, so that several failed requests are
# not repeated at the same time.
_JITTER = 0.25
_POLL_S = 0.1  # During a delay, the caller's deadline is checked at this interval.
_FAILURES = (APIConnectionError, APIStatusError, httpx2.RequestError)
_RETRYABLE = frozenset({408, 409, 429})
# A request with one of these statuses may have failed because of its content, so requests with
# other content may succeed.
_REQUEST_STATUSES = frozenset({400, 413, 422})
# Some servers, for example llama.cpp, answer 500 if a text is too long. A retry would not help.
_TOO_LONG = re.compile(
    r"too (?:large|long)|exceeds? (?:the |its |maximum )*(?:context|token)", re.IGNORECASE
)
_KNOWN_CODES = frozenset(
    {
        "context_length_exceeded",
        "insufficient_quota",
        "invalid_api_key",
        "model_not_found",
        "rate_limit_exceeded",
    }
)
# When the HTTP client has opened a connection, it reports an event whose name ends with one of
# these suffixes.
_OPENED = (".connect_tcp.complete", ".start_tls.complete")
_ATTEMPT_DEADLINE: ContextVar[Deadline] = ContextVar("deadline_of_attempt")

Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Decides when and how often a failed request is retried.

    - `count`: the maximum count of retries, at most four.
    - `max_delay_s`: if the endpoint asks for a longer delay in `Retry-After`, the request is not
      retried.
    - `after_timeout`: True if a request that timed out is retried.
    """

    count: int
    max_delay_s: float
    after_timeout: bool


@dataclass(frozen=True, slots=True)
class ErrorMapping:
    """The error classes for the failures of an endpoint, and advice for the operator by status.

    - `unavailable`: the class of retryable errors.
    - `rejected`: the class of non-retryable errors that the content of a request may have caused.
    - `refused`: a function that returns a non-retryable error with the given message. The error
      means that every request would fail.
    - `hints`: advice for the operator, by HTTP status.
    """

    unavailable: type[HragError]
    rejected: type[HragError]
    refused: Callable[[str], HragError]
    hints: Mapping[int, str]


class _BoundedRead:
    """Reads from a connection until the deadline of the attempt that uses the connection.

    The HTTP client's timeout limits each read separately, so a reply that arrives byte by byte
    would never time out. If a reply is streamed, the attempt ends when the headers of the reply
    have arrived. After that, the attribute `deadline` limits the reads of the stream.
    """

    def __init__(self, read: Callable[[int, float], bytes], stage: str) -> None:
        self._read = read
        self._stage = stage
        self.deadline = NEVER

    def __call__(self, max_bytes: int, timeout: float) -> bytes:
        deadline = _ATTEMPT_DEADLINE.get(self.deadline)
        deadline.check(self._stage)
        return self._read(max_bytes, max(_MIN_TIMEOUT_S, min(timeout, deadline.remaining_s)))


class Endpoint:
    """A client for one endpoint. Thread-safe."""

    def __init__(
        self,
        kind: str,
        access: EndpointAccess,
        errors: ErrorMapping,
        retries: RetryPolicy,
        timeout_s: float,
    ) -> None:
        """Creates the client; sends no request.

        `kind` is the purpose of the endpoint, for example "embedding"; error messages contain it.
        `timeout_s` limits one attempt including its whole reply. For a stream, `timeout_s` limits
        the time until the reply begins, and then each wait for the next part of the reply.
        """
        self.name = f"the {kind} endpoint {_host(access.base_url)}"
        self.client = OpenAI(
            api_key=access.api_key,
            base_url=access.base_url,
            max_retries=0,
            http_client=DefaultHttpxClient(
                event_hooks={"request": [self._trace], "response": [_check_status]},
                follow_redirects=False,
            ),
        )
        self._errors = errors
        self._retries = retries
        self._delays_s = _DELAYS_S[: retries.count]
        self._timeout_s = timeout_s

    def send(self, request: Callable[[Timeout], Reply], deadline: Deadline) -> Reply:
        """Calls `request` until it succeeds or must not be retried; returns its result.

        `request` is called with the timeout of the attempt. If the last attempt fails, raises an
        error of the endpoint's ErrorMapping. Raises DeadlineExceeded if the deadline passes, and
        Cancelled if the caller cancels the call.
        """
        try:
            with self.translated_errors(1 + len(self._delays_s)):
                return self._retry(request, deadline)
        except self._errors.unavailable:
            # If the caller's deadline has passed, DeadlineExceeded is raised instead of this error.
            deadline.check(f"waiting for {self.name}")
            raise

    @contextmanager
    def stream(
        self, request: Callable[[Timeout], httpx2.Response], deadline: Deadline
    ) -> Iterator[httpx2.Response]:
        """Yields the reply to `request` once its headers have arrived.

        Closes the reply at the end of the `with` block. Raises the errors that `send` raises, also
        while the `with` block reads the reply.
        """
        response = self.send(request, deadline)
        try:
            read_until(response, deadline)
            with self.translated_errors():
                yield response
        finally:
            response.close()

    def read(self, response: httpx2.Response) -> bytes:
        """Returns the whole content of a reply.

        Raises the endpoint's retryable error if the content has more than MAX_REPLY_BYTES.
        """
        content = _content(response, MAX_REPLY_BYTES)
        if len(content) > MAX_REPLY_BYTES:
            self.raise_unavailable(f"returned over {MAX_REPLY_BYTES} bytes, the limit of a reply")
        return content

    def _retry(self, request: Callable[[Timeout], Reply], deadline: Deadline) -> Reply:
        for delay_s in self._delays_s:
            try:
                return self._attempt(request, deadline)
            except _FAILURES as error:
                wait_s = self._retry_delay_s(error, delay_s)
                if wait_s is None or wait_s >= deadline.remaining_s:
                    raise
            self._pause(wait_s, deadline)
        return self._attempt(request, deadline)

    def _attempt(self, request: Callable[[Timeout], Reply], deadline: Deadline) -> Reply:
        deadline.check(f"sending a request to {self.name}")
        limit = deadline.within(self._timeout_s)
        seconds = max(_MIN_TIMEOUT_S, limit.remaining_s)
        token = _ATTEMPT_DEADLINE.set(limit)
        try:
            return request(Timeout(seconds, connect=min(seconds, _CONNECT_TIMEOUT_S)))
        except DeadlineExceeded:
            # If the caller's deadline has passed, this raises DeadlineExceeded. Otherwise only the
            # attempt has timed out.
            deadline.check(f"waiting for {self.name}")
            raise httpx2.ReadTimeout("the attempt timed out") from None
        finally:
            _ATTEMPT_DEADLINE.reset(token)

    def _trace(self, request: httpx2.Request) -> None:
        request.extensions["trace"] = self._bound_reads

    def _bound_reads(self, event: str, info: Mapping[str, Any]) -> None:
        """Makes the reads from a new connection end at the deadline of the attempt.

        The HTTP client calls this method at each step of a request.
        """
        if event.endswith(_OPENED):
            connection = info["return_value"]
            connection.read = _BoundedRead(connection.read, f"waiting for {self.name}")

    def _retry_delay_s(self, error: Exception, delay_s: float) -> float | None:
        """Returns the delay before the next attempt, in seconds; None if there must be no retry."""
        delay_s *= random.uniform(1, 1 + _JITTER)
        if isinstance(error, APITimeoutError | httpx2.TimeoutException):
            return delay_s if self._retries.after_timeout else None
        if not isinstance(error, APIStatusError):
            return delay_s
        if not is_retryable(error.status_code) or refused_content(error) is not None:
            return None
        try:
            requested_s = float(error.response.headers.get("retry-after", delay_s))
        except ValueError:
            return delay_s
        return requested_s if 0 <= requested_s <= self._retries.max_delay_s else None

    def _pause(self, seconds: float, deadline: Deadline) -> None:
        until = deadline.within(seconds)
        while (left_s := until.remaining_s) > 0:
            time.sleep(min(left_s, _POLL_S))
            deadline.check(f"waiting to retry a request to {self.name}")

    @contextmanager
    def translated_errors(self, attempts: int = 1) -> Iterator[None]:
        """Translates exceptions of the SDK and its HTTP client to errors of the ErrorMapping.

        `attempts` is the maximum number of attempts, for the error message.
        """
        gave_up = f"; gave up after at most {attempts} attempts" if attempts > 1 else ""
        try:
            yield
        except (APITimeoutError, httpx2.TimeoutException):
            self.raise_unavailable(f"did not answer within {self._timeout_s:g} s{gave_up}")
        except APIConnectionError as error:
            self.raise_unavailable(f"cannot be reached ({_reason(error)}){gave_up}")
        except httpx2.RequestError as error:
            # If an error occurs after a reply has started, the SDK does not convert the error, so
            # the error of the HTTP client arrives here.
            self.raise_unavailable(f"ended the reply early ({_reason(error)}){gave_up}")
        except APIStatusError as error:
            if error.response.has_redirect_location:
                self._raise_for_redirect(error.response)
            if error.status_code >= 500 and refused_content(error) is not None:
                self.raise_rejected(f"answered {error.status_code}: a text is too long for it")
            self.raise_for_status(error.status_code, error.code, gave_up)

    def raise_for_status(self, status: int, code: object, gave_up: str = "") -> NoReturn:
        """Raises the error for an HTTP status; `code` is OpenAI's error code, if there is one."""
        code_suffix = f" ({code})" if isinstance(code, str) and code in _KNOWN_CODES else ""
        if is_retryable(status):
            self.raise_unavailable(f"answered {status}{code_suffix}{gave_up}")
        hints = self._errors.hints
        hint = f": {hints[status]}" if status in hints else ""
        kind = self._errors.rejected if status in _REQUEST_STATUSES else self._errors.refused
        raise kind(f"{self.name} answered {status}{code_suffix}{hint}") from None

    def _raise_for_redirect(self, response: httpx2.Response) -> NoReturn:
        raise self._errors.refused(
            f"{self.name} answered {response.status_code}: it redirects to "
            f"{_redirect_target(response.headers['location'])}, and redirects are not followed, "
            "because the texts would be sent there; if this host is to be trusted, set the "
            "endpoint's URL to it"
        ) from None

    def raise_unavailable(self, problem: str) -> NoReturn:
        """Raises the endpoint's retryable error. Its message is `name` followed by `problem`."""
        raise self._errors.unavailable(f"{self.name} {problem}") from None

    def raise_rejected(self, problem: str) -> NoReturn:
        """Raises the endpoint's permanent error. Its message is `name` followed by `problem`."""
        raise self._errors.rejected(f"{self.name} {problem}") from None


def read_until(response: httpx2.Response, deadline: Deadline) -> None:
    """Sets the deadline for reading a streamed reply.

    Reading the reply after the deadline raises DeadlineExceeded.
    """
    # Only the time of the deadline is copied. Otherwise the open connection would refer to the
    # caller's objects, and their memory would not be freed.
    response.extensions["network_stream"].read.deadline = Deadline(deadline.at_s)


def is_retryable(status: int) -> bool:
    """Returns True if a request that failed with this HTTP status may succeed later."""
    return status in _RETRYABLE or status >= 500


def _check_status(response: httpx2.Response) -> None:
    """Raises APIStatusError if the status of a reply is not one of success.

    The HTTP client calls this function before the content of a reply is read. Without this
    function, the SDK would read the whole content of an error, however large it is. The SDK would
    also decode the content with the codec that the header names, for example `charset=hex`, and a
    codec like this may raise any exception. The content of a redirect is not read at all.
    """
    if response.has_redirect_location:
        raise APIStatusError("", response=response, body=None)
    if not response.is_success:
        content = _content(response, MAX_ERROR_BYTES).decode("utf-8", "replace")
        body = {"code": _error_code(content), "content": content}
        raise APIStatusError("", response=response, body=body)


def refused_content(error: APIStatusError) -> str | None:
    """Returns the content of the reply by which an endpoint has refused the content of a request.

    Returns None if the status has another cause. The content may quote the request and the key, so
    it must not be shown.
    """
    if not isinstance(error.body, dict):
        return None
    content = str(error.body["content"])
    is_too_long = error.status_code == 500 and _TOO_LONG.search(content)
    return content if error.status_code in _REQUEST_STATUSES or is_too_long else None


def _error_code(text: str) -> str | None:
    """Returns OpenAI's error code from the content of a reply; None if there is none."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    error = content.get("error", content) if isinstance(content, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) else None


def _content(response: httpx2.Response, max_bytes: int) -> bytes:
    """Returns the content of a reply.

    Stops reading as soon as it has read more than `max_bytes` bytes, and returns what it has read.
    So the caller recognises a content that is too long by a result of more than `max_bytes` bytes.
    """
    content = bytearray()
    for received in response.iter_bytes():
        content += received
        if len(content) > max_bytes:
            break
    return bytes(content)


def _redirect_target(location: str) -> str:
    """Returns only the host of a redirect's location, because the rest may contain a secret."""
    try:
        host = urlsplit(location).hostname
    except ValueError:
        host = None
    return quoted(host) if host else "another path of the same host"


def _host(base_url: str) -> str:
    """Returns only the host and the port of a URL, because the rest may contain a password."""
    parts = urlsplit(base_url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def _reason(error: BaseException) -> str:
    """Returns the cause of a failed request, in a form without secrets.

    If an error of the operating system is the cause, returns the message of this error. Otherwise
    returns only the class name of the cause, because its message may contain the key, for example
    in a malformed header.
    """
    cause: BaseException | None = error.__cause__ or error
    kind = type(cause).__name__
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return str(cause) if cause is not None else kind
