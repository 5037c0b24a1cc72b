"""Texts in other encodings than UTF-8, and what is no text."""

import gzip
import random

import pytest

from hrag.cli.ingest.encodings import decoded
from hrag.cli.ingest.input_document import Unreadable

CHINESE = "中文的文档，关于猫和狗。它们睡觉和吃饭。" * 3


@pytest.mark.parametrize(
    ("text", "encoding", "named"),
    [
        (CHINESE, "gb18030", "gb18030"),
        (CHINESE, "utf-16", "utf_16"),
        ("Hello world, this is text. " * 3, "utf-16-le", "utf_16_le"),
        ("猫は寝ます。犬は吠えます。カタカナ" * 3, "shift_jis", "cp932"),
        ("Привет, мир. Это текст о кошках. " * 3, "cp1251", "cp1251"),
    ],
)
def test_an_encoding_is_detected_and_named(text, encoding, named):
    body, found = decoded(text.encode(encoding))
    assert (body.decode(), found) == (text, named)


@pytest.mark.parametrize(
    "text", ["plain", CHINESE, "\N{ZERO WIDTH NO-BREAK SPACE}mark", "\x1b[31m"]
)
def test_utf_8_is_kept_as_it_is(text):
    assert decoded(text.encode()) == (text.encode(), "")


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        ("Tür\n".encode("cp1252"), "cp1252"),
        ("Мир\n".encode("cp866"), "cp866"),
        (b"a\0b\0", "utf-16-le"),
    ],
)
def test_too_few_bytes_to_guess_from_are_refused(body, encoding):
    with pytest.raises(Unreadable, match=f"{len(body)} bytes are too few .*; --encoding says"):
        decoded(body)
    assert decoded(body, encoding)[0].decode() == body.decode(encoding)


def test_a_byte_order_mark_is_no_guess():
    assert decoded("Tür".encode("utf-16")) == ("Tür".encode(), "utf_16")


GERMAN = "Größe der Tür und Straße. " * 200


@pytest.mark.parametrize(
    ("body", "byte"),
    [
        (GERMAN.encode() + "—".encode()[:2], "0xE2 at offset 6,000"),
        (GERMAN.encode() + b"\xff" + GERMAN.encode(), "0xFF at offset 6,000"),
        (b"Error log of the pump. " * 300 + "—".encode()[:2], "0xE2 at offset 6,900"),
        (CHINESE.encode()[:-1], "0xE3 at offset 177"),
        (CHINESE.encode()[1:], "0xB8 at offset 0"),
        (b"\xef\xbf\xbd damaged before " * 2 + b"and \xe9 now \xe9 again", "0xE9 at offset 42"),
    ],
)
def test_damaged_utf_8_is_refused_with_the_place(body, byte):
    with pytest.raises(Unreadable, match=f"it is not utf-8: byte {byte}.*; --encoding says"):
        decoded(body)


@pytest.mark.parametrize(
    "body",
    [
        random.Random(0).randbytes(4000),
        gzip.compress(CHINESE.encode() * 20),
        b"\x7fELF\x02\x01\x01\0\0\0" + bytes(range(256)) * 8,
        b"abc\0def\0" * 100,
    ],
)
def test_binary_noise_is_refused(body):
    with pytest.raises(
        Unreadable, match="neither text in a known encoding nor a file of a known format"
    ):
        decoded(body)


def test_a_given_encoding_is_used():
    assert decoded("日本".encode("euc-jp"), "euc-jp") == ("日本".encode(), "euc_jp")
    assert decoded(b"abc", "UTF8") == (b"abc", "")
    with pytest.raises(Unreadable, match="it is not utf-8: byte 0xE9 at offset 3"):
        decoded("café".encode("latin-1"), "utf-8")
