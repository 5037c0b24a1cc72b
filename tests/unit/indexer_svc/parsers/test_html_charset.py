"""Pages inside other files are decoded as UTF-8, or as they declare."""

import pytest

from hrag.values.errors import UnreadableDocument
from indexer_svc.parsers.html_charset import decoded


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<p>Käse 猫".encode(), "Käse 猫"),
        ("\ufeff<p>Käse".encode(), "Käse"),
        ("<p>Käse".encode("utf-16"), "Käse"),
        ('<meta charset="iso-8859-1"><p>Käse “x”'.encode("cp1252"), "Käse “x”"),
        ("<meta http-equiv=x content='text/html; charset=Shift_JIS'>猫".encode("shift_jis"), "猫"),
        ("<?xml version='1.0' encoding='koi8-r'?><p>мёд".encode("koi8-r"), "мёд"),
        (b"<meta charset=gb2312><p>\xc3\xa8\xff", "猫\ufffd"),
        (b"<meta charset=utf-8><p>caf\xe9", "caf\ufffd"),
        (b"\xef\xbb\xbf<p>caf\xe9", "caf\ufffd"),
    ],
    ids=[
        *("utf-8", "mark", "utf-16", "latin", "japanese", "xml", "damaged", "damaged utf-8"),
        "damaged after a mark",
    ],
)
def test_characters_are_decoded_as_utf8_or_as_the_page_declares(content, text):
    assert decoded(content).endswith(text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<p>caf\xe9", "byte 0xE9 at offset 6, and the page declares no encoding"),
        # A pattern that tries every division of the spaces for each tag would take ten seconds.
        (b"<meta " * 80 + b"charset=" + b" " * 4000 + b"\xe9", "declares no encoding"),
        (b"<meta charset=klingon>\xe9", "declares the unknown encoding klingon"),
        (b"<p>\0", "NUL byte at offset 3"),
        (b"\x89PNG\r\n\x1a\n\0", "NUL byte"),
    ],
)
def test_bytes_that_cannot_be_decoded_are_refused(content, message):
    with pytest.raises(UnreadableDocument, match=message):
        decoded(content)
