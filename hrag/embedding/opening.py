"""From settings to an embedder.

The model and the OpenAI SDK are imported only by those who ask for them: they cost a second
and a hundred megabytes.
"""

import re
from urllib.parse import urlsplit

import structlog

from hrag.config import CommonSettings, SettingsError
from hrag.embedding import Embedder
from hrag.embedding.hashing import HashEmbedder

OPENAI_BASE_URL = "https://api.openai.com/v1"

_HEADER_SAFE = re.compile(r"[!-~]*")  # What an HTTP header can carry, spaces aside.
_NO_KEY = "none"  # Servers without keys ignore it; the SDK insists on one.


def open_embedder(settings: CommonSettings) -> Embedder:
    """Returns the embedder that HRAG_EMBEDDER names, ready for use.

    `openai` is not contacted yet. Raises SettingsError, which names the variable.
    """
    provider, _, argument = settings.embedder.partition(":")
    if provider == "hash":
        return _open_hash(int(argument))
    if provider == "openai":
        return _open_openai(settings)
    return _open_builtin()


def _open_builtin() -> Embedder:
    from hrag.embedding.builtin import BuiltinEmbedder  # noqa: PLC0415  # see above

    return BuiltinEmbedder()


def _open_hash(dimension: int) -> Embedder:
    embedder = HashEmbedder(dimension)
    structlog.get_logger().warning(
        "VECTORS CARRY NO MEANING: HRAG_EMBEDDER=hash is for load tests only",
        embedder=embedder.name,
    )
    return embedder


def _open_openai(settings: CommonSettings) -> Embedder:
    from hrag.embedding.openai import OpenAIEmbedder  # noqa: PLC0415  # see above

    base_url = _base_url(settings)
    return OpenAIEmbedder(
        model=settings.openai_model,
        base_url=base_url,
        api_key=_api_key(settings, base_url),
        dimensions=settings.openai_dimensions,
        timeout_s=settings.openai_timeout_s,
    )


def _base_url(settings: CommonSettings) -> str:
    url = settings.openai_base_url or OPENAI_BASE_URL
    try:
        parts = urlsplit(url)
        _ = parts.port  # Reading it is what checks it.
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(
            f"OPENAI_BASE_URL={url!r}: it must be an http or https URL, as in {OPENAI_BASE_URL}"
        )
    return url


def _api_key(settings: CommonSettings, base_url: str) -> str:
    key = settings.openai_api_key
    if not _HEADER_SAFE.fullmatch(key):
        raise SettingsError(
            "OPENAI_API_KEY (not shown): it must be visible ASCII without spaces or line ends"
        )
    if not key and base_url.rstrip("/") == OPENAI_BASE_URL:
        raise SettingsError(
            "OPENAI_API_KEY='': HRAG_EMBEDDER=openai needs a key, unless OPENAI_BASE_URL "
            "names an endpoint that takes none"
        )
    return key or _NO_KEY
