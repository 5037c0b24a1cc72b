"""A format is found by a MIME type, and a MIME type by the extension of a file."""

from pathlib import Path

import pytest

from hrag.values.formats import (
    CSV,
    DOCX,
    EXTENSIONS,
    FORMATS,
    HTML,
    MARKDOWN,
    PDF,
    PNG,
    PYTHON,
    RST,
    format_of,
    mime_type_of,
)


def test_every_mime_type_and_every_extension_belongs_to_one_format():
    names = [name for format_ in FORMATS for name in (format_.mime_type, *format_.aliases)]
    assert len(set(names)) == len(names)
    assert len(set(EXTENSIONS)) == len(EXTENSIONS)
    assert all(name == name.lower() for name in (*names, *EXTENSIONS))


@pytest.mark.parametrize(
    ("file", "mime_type"),
    [
        ("a.md", MARKDOWN),
        (Path("b/c.PDF"), PDF),
        ("c.rst", RST),
        ("index.HTM", HTML),
        ("x.tar.csv", CSV),
        ("letter.docx", DOCX),
        ("code.py", PYTHON),
        ("photo.PNG", PNG),
        ("photo.webp", ""),
        ("README", ""),
        (".md", ""),
        ("", ""),
    ],
)
def test_the_extension_of_a_file_determines_its_mime_type(file, mime_type):
    assert mime_type_of(file) == mime_type


def test_a_format_is_found_by_its_mime_type_and_by_its_aliases():
    for name in ("text/html", "application/xhtml+xml"):
        known_format = format_of(name)
        assert known_format is not None
        assert known_format.mime_type == HTML
    assert format_of("image/webp") is None
