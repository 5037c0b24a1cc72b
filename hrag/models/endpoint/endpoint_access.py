"""The URL and the key of an endpoint, validated before the first request.

This module does not import the OpenAI SDK. So a service that calls no endpoint does not need the
time and the memory to load the SDK.
"""

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from hrag.config import SettingsError

OPENAI_BASE_URL = "https://api.openai.com/v1"

_HEADER_SAFE = re.compile(r"[!-~]*")  # An HTTP header can contain only visible ASCII.
_NO_KEY = "none"  # The SDK requires a key. A server that needs no key ignores this key.


@dataclass(frozen=True, slots=True)
class Variable:
    """The name and the value of an environment variable."""

    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class EndpointAccess:
    """The URL and the key of an endpoint."""

    base_url: str
    api_key: str = field(repr=False)


def access(url: Variable, key: Variable, required_by: str) -> EndpointAccess:
    """Returns the validated URL and key of an endpoint.

    An empty `url` means OpenAI's URL, an empty `key` means no key. `required_by` is the setting
    that requires the endpoint. If the URL or the key is invalid, raises SettingsError, which names
    the environment variable.
    """
    base_url = url.value or OPENAI_BASE_URL
    _check_url(url.name, base_url)
    if not _HEADER_SAFE.fullmatch(key.value):
        raise SettingsError(
            f"{key.name} (not shown): it must be visible ASCII without spaces or line ends"
        )
    if not key.value and base_url.rstrip("/") == OPENAI_BASE_URL:
        raise SettingsError(
            f"{key.name}='': {required_by} requires a key, unless {url.name} "
            "names an endpoint that needs no key"
        )
    return EndpointAccess(base_url, key.value or _NO_KEY)


def _check_url(variable: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # This property raises ValueError if the port is invalid.
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(
            f"{variable}={url!r}: it must be an http or https URL, as in {OPENAI_BASE_URL}"
        )
