"""Where an endpoint is and with which key, checked before anything is sent to it.

Loads nothing of the SDK: a service that asks no endpoint does not pay for it.
"""

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from hrag.config import SettingsError

OPENAI_BASE_URL = "https://api.openai.com/v1"

_HEADER_SAFE = re.compile(r"[!-~]*")  # What an HTTP header can carry, spaces aside.
_NO_KEY = "none"  # Servers without keys ignore it; the SDK insists on one.


@dataclass(frozen=True, slots=True)
class Variable:
    """A setting, and the variable it comes from."""

    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Access:
    """An endpoint's URL, and a key for it."""

    base_url: str
    api_key: str = field(repr=False)


def access(url: Variable, key: Variable, wanted_by: str) -> Access:
    """Empty, the URL is OpenAI's own, and no key is one that says nothing.

    `wanted_by` is the setting that makes an endpoint necessary. Raises SettingsError, which
    names the variable.
    """
    base_url = url.value or OPENAI_BASE_URL
    _check_url(url.name, base_url)
    if not _HEADER_SAFE.fullmatch(key.value):
        raise SettingsError(
            f"{key.name} (not shown): it must be visible ASCII without spaces or line ends"
        )
    if not key.value and base_url.rstrip("/") == OPENAI_BASE_URL:
        raise SettingsError(
            f"{key.name}='': {wanted_by} needs a key, unless {url.name} "
            "names an endpoint that takes none"
        )
    return Access(base_url, key.value or _NO_KEY)


def _check_url(variable: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # Reading it is what checks it.
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(
            f"{variable}={url!r}: it must be an http or https URL, as in {OPENAI_BASE_URL}"
        )
