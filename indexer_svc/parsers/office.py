"""What Office documents have in common: their properties and the relations between parts."""

from collections.abc import Mapping
from posixpath import basename, dirname

from indexer_svc.parsers.package import Package, resolved
from indexer_svc.titles import metadata_title

_PROPERTIES = "docProps/core.xml"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"
_RELATION = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"


def office_title(package: Package) -> str:
    """The title in a document's properties; empty if there is none or a placeholder."""
    if _PROPERTIES not in package:
        return ""
    return metadata_title(package.xml(_PROPERTIES).findtext(_TITLE) or "")


def relations(package: Package, part: str) -> Mapping[str, tuple[str, str]]:
    """The relations of a part by id: the last word of the type, and the part that it names.

    Relations to anything outside of the package are left out.
    """
    name = f"{dirname(part)}/_rels/{basename(part)}.rels"
    if name not in package:
        return {}
    return {
        each.get("Id", ""): (basename(each.get("Type", "")), resolved(part, each.get("Target", "")))
        for each in package.xml(name).iter(_RELATION)
        if each.get("TargetMode") != "External"
    }
