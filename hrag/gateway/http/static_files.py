"""Serves the files of a folder. The files are read once, when the gateway starts.

The pages load nothing from other servers; a content security policy enforces this.
"""

import hashlib
import mimetypes
from collections.abc import Mapping
from functools import partial
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response

from hrag.gateway.http.routes import Route

_INDEX = "index.html"
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Browsers cache a file, but before each use they ask whether the entity tag is unchanged.
    "cache-control": "no-cache",
}


def static_routes(folder: Traversable, index: str) -> Mapping[str, Route]:
    """Returns the routes of a folder's files, by their paths in URLs.

    The parameter `index` is the path of the file `index.html`. The other files have paths below
    it. Files without a known media type have no route. Returns no routes if the folder does not
    exist.
    """
    if not folder.is_dir():
        return {}
    return {
        index if file.name == _INDEX else f"{index.rstrip('/')}/{file.name}": page(
            file.name, file.read_bytes()
        )
        for file in folder.iterdir()
        if file.is_file() and mimetypes.guess_type(file.name)[0]
    }


def page(name: str, content: bytes) -> Route:
    """Returns the route of a file; the extension of `name` determines the media type."""
    media_type = mimetypes.guess_type(name)[0]
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return Route(partial(_serve, content, media_type, {**_HEADERS, "etag": tag}))


async def _serve(
    content: bytes, media_type: str | None, headers: Mapping[str, str], request: Request
) -> Response:
    known = request.headers.get("if-none-match", "")
    if headers["etag"] in known:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)
