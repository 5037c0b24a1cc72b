"""What Office documents have in common: properties, relations between parts, two dialects of XML.

Open XML has a Strict and a Transitional form, which differ in their namespaces.
"""

import re
from collections.abc import Mapping
from posixpath import basename, dirname, join

from indexer_svc.parsers.package import Element, Package, resolved
from indexer_svc.titles import metadata_title

_PROPERTIES = "docProps/core.xml"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"
_RELATION = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"

_STRICT = "{http://purl.oclc.org/ooxml/"
_STRICT_NAMESPACE = re.compile(re.escape(_STRICT) + r"(\w+)/")
_TRANSITIONAL_NAMESPACE = r"{http://schemas.openxmlformats.org/\1/2006/"


def office_title(package: Package) -> str:
    """The title in a document's properties; empty if there is none or a placeholder."""
    if _PROPERTIES not in package:
        return ""
    return metadata_title(package.xml(_PROPERTIES).findtext(_TITLE) or "")


def office_xml(package: Package, part: str) -> Element:
    """The root of a part, with the names of Transitional Open XML whichever it has.

    Raises as `Package.xml` does.
    """
    root = package.xml(part)
    for element in root.iter():
        element.tag = _transitional(element.tag)
        for name in [each for each in element.attrib if each.startswith(_STRICT)]:
            element.set(_transitional(name), element.attrib.pop(name))
    return root


def relations_part(part: str) -> str:
    """The name of the part that holds the relations of another; those of the package for ""."""
    return join(dirname(part), "_rels", f"{basename(part)}.rels")


def relations(package: Package, part: str) -> Mapping[str, tuple[str, str]]:
    """The relations of a part by id: the last word of the type, and the part that it names.

    Relations to anything outside of the package are left out.
    """
    name = relations_part(part)
    if name not in package:
        return {}
    return {
        each.get("Id", ""): (basename(each.get("Type", "")), resolved(part, each.get("Target", "")))
        for each in package.xml(name).iter(_RELATION)
        if each.get("TargetMode") != "External"
    }


def related_part(package: Package, part: str, kind: str, otherwise: str) -> str:
    """The first existing part to which `part` has a relation of a kind; `otherwise` if none."""
    named = (name for each, name in relations(package, part).values() if each == kind)
    return next((name for name in named if name in package), otherwise)


def _transitional(name: str) -> str:
    if not name.startswith(_STRICT):
        return name
    return _STRICT_NAMESPACE.sub(_TRANSITIONAL_NAMESPACE, name, count=1)
