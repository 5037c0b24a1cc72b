"""The options that say how a file is read: its format, its encoding, and parts that are left out.

`hrag ingest` and `hrag read` have the same options.
"""

from typing import Annotated

import typer

from hrag.values.formats import UNKNOWN_TYPES, format_named


def _check_encoding(name: str) -> str:
    """Returns the name of an encoding unchanged. Raises BadParameter if Python does not know it."""
    try:
        b"a".decode(name or "utf-8", "replace")
    except (LookupError, UnicodeError):
        # Python raises UnicodeError for encodings that are for host names only.
        raise typer.BadParameter(
            f"{name!r} is not a text encoding; cp1252 is an example of one"
        ) from None
    return name


def _mime_type_named(name: str) -> str:
    """Returns the MIME type of a format with this name. Raises BadParameter if it is unknown."""
    if name in UNKNOWN_TYPES:
        return ""
    known = format_named(name)
    if known is None:
        raise typer.BadParameter(
            f"{name!r} is no format; it must be the extension of a known format such as md, html "
            "or pdf, text for plain text, or a MIME type"
        )
    return known.mime_type


Encoding = Annotated[
    str,
    typer.Option(
        callback=_check_encoding,
        help="The encoding of the texts. Default: UTF-8, or the encoding that is detected.",
        show_default=False,
    ),
]
AsFormat = Annotated[
    str,
    typer.Option(
        "--as",
        metavar="FORMAT",
        callback=_mime_type_named,
        help="The format of the files: an extension such as md, text for plain text, or a MIME "
        "type. Default: the format that their content shows, otherwise their extension.",
        show_default=False,
    ),
]
KeepBoilerplate = Annotated[
    bool,
    typer.Option(
        "--keep-boilerplate",
        help="Also read the parts of web pages around their content, such as navigation.",
    ),
]
