"""An endpoint that speaks OpenAI's protocol: the SDK's client, and what its failures mean.

Requests are tried again here, not by the SDK, which knows no deadline: on 408, 409, 429, 5xx
and lost connections, with growing delays or after `Retry-After`, while somebody waits.

No message repeats the key, what was sent, or the endpoint's own words, which may quote
either.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn, TypeVar
from urllib.parse import urlsplit

import httpx2
from openai import APIConnectionError, APIStatusError, APITimeoutError, OpenAI, Timeout

from hrag.deadline import Deadline
from hrag.endpoint.access import Access
from hrag.errors import HragError

_CONNECT_TIMEOUT_S = 5.0  # A host that is up accepts at once, however long its answers take.
_DELAYS_S = (0.5, 1.0, 2.0, 4.0)
_JITTER = 0.25  # At most so much longer, so that those who failed together do not meet again.
_POLL_S = 0.1  # How often a delay looks whether its caller is still there.
_RETRYABLE = frozenset({408, 409, 429})
_KNOWN_CODES = frozenset(
    {
        "context_length_exceeded",
        "insufficient_quota",
        "invalid_api_key",
        "model_not_found",
        "rate_limit_exceeded",
    }
)


Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class Retries:
    """How a request is tried again: `count` times at most, and at most four.

    Whoever is asked by `Retry-After` to wait longer than `longest_s` gives up at once.
    """

    count: int
    longest_s: float
    if_slow: bool  # Whether an endpoint that does not answer in time is asked again.


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What failures are raised as, and what an operator can do about a status."""

    unavailable: type[HragError]  # Trying again may help.
    rejected: type[HragError]  # It will not.
    hints: Mapping[int, str]


class Endpoint:
    """One endpoint. Safe to use from several threads."""

    def __init__(
        self, kind: str, access: Access, verdicts: Verdicts, retries: Retries, timeout_s: float
    ) -> None:
        """Does not contact it.

        `kind` is what it is for. `timeout_s` bounds each wait of one attempt.
        """
        self.name = f"the {kind} endpoint {_host(access.base_url)}"
        self.client = OpenAI(
            api_key=access.api_key,
            base_url=access.base_url,
            max_retries=0,
        )
        self._verdicts = verdicts
        self._retries = retries
        self._delays_s = _DELAYS_S[: retries.count]
        self._timeout_s = timeout_s

    def send(self, request: Callable[[Timeout], Reply], deadline: Deadline) -> Reply:
        """What `request` returns, which is given the timeout of each attempt.

        Raises `unavailable` or `rejected` after the last one, and what `deadline` does.
        """
        try:
            with self.explained(1 + len(self._delays_s)):
                return self._tried(request, deadline)
        except self._verdicts.unavailable:
            deadline.check(f"waiting for {self.name}")  # Then that is what went wrong.
            raise

    def _tried(self, request: Callable[[Timeout], Reply], deadline: Deadline) -> Reply:
        for delay_s in self._delays_s:
            try:
                return self._attempt(request, deadline)
            except (APIConnectionError, APIStatusError) as error:
                wait_s = self._wait_s(error, delay_s)
                if wait_s is None or wait_s >= deadline.remaining_s:
                    raise
            self._pause(wait_s, deadline)
        return self._attempt(request, deadline)

    def _attempt(self, request: Callable[[Timeout], Reply], deadline: Deadline) -> Reply:
        deadline.check(f"asking {self.name}")
        seconds = max(0.001, min(self._timeout_s, deadline.remaining_s))
        return request(Timeout(seconds, connect=min(seconds, _CONNECT_TIMEOUT_S)))

    def _wait_s(self, error: APIConnectionError | APIStatusError, delay_s: float) -> float | None:
        """How long to wait before trying again; None where that would not help."""
        delay_s *= random.uniform(1, 1 + _JITTER)
        if isinstance(error, APITimeoutError):
            return delay_s if self._retries.if_slow else None
        if isinstance(error, APIConnectionError):
            return delay_s
        if not may_pass(error.status_code):
            return None
        try:
            asked_s = float(error.response.headers.get("retry-after", delay_s))
        except ValueError:
            return delay_s
        return asked_s if 0 <= asked_s <= self._retries.longest_s else None

    def _pause(self, seconds: float, deadline: Deadline) -> None:
        until = deadline.within(seconds)
        while (left_s := until.remaining_s) > 0:
            time.sleep(min(left_s, _POLL_S))
            deadline.check(f"waiting to ask {self.name} again")

    @contextmanager
    def explained(self, attempts: int = 1) -> Iterator[None]:
        """Raises what the SDK and its HTTP client raise as `unavailable` or `rejected`.

        `attempts` is how often a request is tried at most.
        """
        gave_up = f"; gave up after at most {attempts} attempts" if attempts > 1 else ""
        try:
            yield
        except (APITimeoutError, httpx2.TimeoutException):
            self.unavailable(f"did not answer within {self._timeout_s:g} s{gave_up}")
        except APIConnectionError as error:
            self.unavailable(f"cannot be reached ({_reason(error)}){gave_up}")
        except httpx2.RequestError as error:  # Once a reply has begun, the SDK wraps nothing.
            self.unavailable(f"broke off ({_reason(error)}){gave_up}")
        except APIStatusError as error:
            self.refused(error.status_code, error.code, gave_up)

    def refused(self, status: int, code: object, gave_up: str = "") -> NoReturn:
        """Raises what an HTTP status means; `code` is OpenAI's own, if the endpoint has one."""
        known = f" ({code})" if isinstance(code, str) and code in _KNOWN_CODES else ""
        if may_pass(status):
            self.unavailable(f"answered {status}{known}{gave_up}")
        hints = self._verdicts.hints
        hint = f": {hints[status]}" if status in hints else ""
        self.rejected(f"answered {status}{known}{hint}")

    def unavailable(self, what_happened: str) -> NoReturn:
        """Raises that trying again may help."""
        raise self._verdicts.unavailable(f"{self.name} {what_happened}") from None

    def rejected(self, what_happened: str) -> NoReturn:
        """Raises that trying again will not help."""
        raise self._verdicts.rejected(f"{self.name} {what_happened}") from None


def may_pass(status: int) -> bool:
    """Whether a request that was answered so may be answered otherwise later."""
    return status in _RETRYABLE or status >= 500


def _host(base_url: str) -> str:
    """Host and port alone: the rest of a URL may hold a password."""
    parts = urlsplit(base_url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def _reason(error: BaseException) -> str:
    """What the operating system said, else the kind of error.

    Other messages are not repeated: one about a malformed header would quote the key.
    """
    cause: BaseException | None = error.__cause__ or error
    kind = type(cause).__name__
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return str(cause) if cause is not None else kind
