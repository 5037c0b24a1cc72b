"""An endpoint that speaks OpenAI's protocol: the SDK's client, and what its failures mean.

No message repeats the key, what was sent, or the endpoint's own words, which may quote
either.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import urlsplit

import httpx2
from openai import APIConnectionError, APIStatusError, APITimeoutError, OpenAI, Timeout

from hrag.endpoint.access import Access
from hrag.errors import HragError

_CONNECT_TIMEOUT_S = 5.0  # A host that is up accepts at once, however long its answers take.
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


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What failures are raised as, and what an operator can do about a status."""

    unavailable: type[HragError]  # Trying again may help.
    rejected: type[HragError]  # It will not.
    hints: Mapping[int, str]


class Endpoint:
    """One endpoint. Safe to use from several threads."""

    def __init__(
        self, kind: str, access: Access, verdicts: Verdicts, *, timeout_s: float, max_retries: int
    ) -> None:
        """Does not contact it.

        `kind` is what it is for. `timeout_s` bounds each wait of one attempt; the SDK makes
        at most `1 + max_retries` of them a request.
        """
        self.name = f"the {kind} endpoint {_host(access.base_url)}"
        self.client = OpenAI(
            api_key=access.api_key,
            base_url=access.base_url,
            max_retries=max_retries,
            timeout=timeout(timeout_s),
        )
        self._verdicts = verdicts
        self._timeout_s = timeout_s

    @contextmanager
    def explained(self, attempts: int) -> Iterator[None]:
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


def timeout(seconds: float) -> Timeout:
    """Of each wait in one attempt."""
    return Timeout(seconds, connect=min(seconds, _CONNECT_TIMEOUT_S))


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
