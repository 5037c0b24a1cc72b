"""Finds the part of each sheet of a workbook (XLSX).

A part is a file in the workbook's archive. The library calamine finds a sheet's part by the local
names of elements and attributes, and ignores their namespaces. This module does the same, so that
both find the same part.
"""

from indexer_svc.parsers.office import relations_part
from indexer_svc.parsers.package import Element, Package, resolved

WORKBOOK = "xl/workbook.xml"
"""The part that lists the sheets."""


def sheet_parts(package: Package) -> dict[str, str]:
    """Returns the name of the part of each sheet, by the name of the sheet.

    Of several sheets with the same name, calamine reads the first one. A sheet that does not name
    exactly one part is left out. Raises the errors of `Package.xml`.
    """
    links = relations_part(WORKBOOK)
    targets = {
        link.get("Id", ""): resolved(WORKBOOK, link.get("Target", ""))
        for link in _named(package.xml(links) if links in package else None, "Relationship")
    }
    parts: dict[str, str] = {}
    for sheet in _named(package.xml(WORKBOOK), "sheet"):
        ids = [value for name, value in sheet.attrib.items() if _local_name(name) == "id"]
        if len(ids) == 1 and ids[0] in targets:
            parts.setdefault(sheet.get("name", ""), targets[ids[0]])
    return parts


def _named(root: Element | None, name: str) -> list[Element]:
    """Returns the elements with a local name; an empty list if there is no root element."""
    if root is None:
        return []
    return [element for element in root.iter() if _local_name(element.tag) == name]


def _local_name(name: str) -> str:
    return name.rpartition("}")[2]
