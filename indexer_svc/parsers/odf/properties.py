"""Reads the title of an OpenDocument file, and checks that the file is not encrypted."""

from hrag.values.errors import UnreadableDocument
from indexer_svc.parsers.package import TITLE, Package
from indexer_svc.titles import metadata_title

_METADATA, _MANIFEST = "meta.xml", "META-INF/manifest.xml"
_ENCRYPTION = "{urn:oasis:names:tc:opendocument:xmlns:manifest:1.0}encryption-data"


def odf_title(package: Package) -> str:
    """Returns the title in the metadata of a file, or an empty string.

    The string is empty if the title is missing or is a placeholder like "Untitled 1".
    """
    if _METADATA not in package:
        return ""
    return metadata_title(package.xml(_METADATA).findtext(f".//{TITLE}") or "")


def check_encryption(package: Package, kind: str) -> None:
    """Raises UnreadableDocument if the parts of a file are encrypted.

    `kind` is the name of the format in messages, with its article.
    """
    if _MANIFEST not in package:
        return
    if next(package.xml(_MANIFEST).iter(_ENCRYPTION), None) is not None:
        raise UnreadableDocument(
            f"content is {kind} that is encrypted; save it without a password", field="content"
        )
