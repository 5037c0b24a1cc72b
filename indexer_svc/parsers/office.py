"""Reads what all Office documents have: properties, relations between parts, and XML.

A part is a file in the document's archive. The XML of Office documents (Open XML) has two forms,
Strict and Transitional, which use different namespaces.
"""

import re
from collections.abc import Mapping
from posixpath import basename, dirname, join

from indexer_svc.parsers.package import TITLE, Element, Package, resolved
from indexer_svc.titles import metadata_title

_PROPERTIES = "docProps/core.xml"
COMPATIBILITY = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
"""The namespace of elements that have alternatives for older programs."""
RELATION_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
"""The attribute of an element that names a relation of its part by the relation's id."""

_RELATION = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"

_STRICT = "{http://purl.oclc.org/ooxml/"
_STRICT_NAMESPACE = re.compile(re.escape(_STRICT) + r"(\w+)/")
_TRANSITIONAL_NAMESPACE = r"{http://schemas.openxmlformats.org/\1/2006/"


def office_title(package: Package) -> str:
    """Returns the title in a document's properties, or an empty string.

    The string is empty if the title is missing or is a placeholder like "Document1".
    """
    if _PROPERTIES not in package:
        return ""
    return metadata_title(package.xml(_PROPERTIES).findtext(TITLE) or "")


def office_xml(package: Package, part: str) -> Element:
    """Returns the root element of a part (a file in the document's archive).

    Names of Strict Open XML are replaced by the names of Transitional Open XML, so the returned
    element has only these names. Raises the errors of `Package.xml`.
    """
    root = package.xml(part)
    for element in root.iter():
        element.tag = _transitional(element.tag)
        for name in [key for key in element.attrib if key.startswith(_STRICT)]:
            element.set(_transitional(name), element.attrib.pop(name))
    return root


def relations_part(part: str) -> str:
    """Returns the name of the part (a file) that lists the relations of `part` to other parts.

    If `part` is empty, returns the name of the part that lists the relations of the whole archive.
    """
    return join(dirname(part), "_rels", f"{basename(part)}.rels")


def relations(package: Package, part: str) -> Mapping[str, tuple[str, str]]:
    """Returns the relations of a part by their ids.

    A relation is a pair: the last word of its type, for example `styles`, and the name of the part
    to which it leads. Relations to targets outside of the archive are left out.
    """
    name = relations_part(part)
    if name not in package:
        return {}
    return {
        link.get("Id", ""): (basename(link.get("Type", "")), resolved(part, link.get("Target", "")))
        for link in package.xml(name).iter(_RELATION)
        if link.get("TargetMode") != "External"
    }


def related_part(package: Package, part: str, kind: str, default: str) -> str:
    """Returns the name of the first existing part to which `part` has a relation of type `kind`.

    Returns `default` if there is no such part.
    """
    targets = (name for type_, name in relations(package, part).values() if type_ == kind)
    return next((name for name in targets if name in package), default)


def _transitional(name: str) -> str:
    """Converts an XML name of Strict Open XML to the same name of Transitional Open XML.

    Any other name is returned unchanged.
    """
    if not name.startswith(_STRICT):
        return name
    return _STRICT_NAMESPACE.sub(_TRANSITIONAL_NAMESPACE, name, count=1)
