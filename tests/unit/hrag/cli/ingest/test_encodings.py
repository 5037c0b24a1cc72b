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


def test_a_few_western_bytes_are_not_taken_for_utf_16():
    assert decoded("café".encode("latin-1"))[1] not in ("utf_16_be", "utf_16_le")


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
    with pytest.raises(Unreadable, match="neither text in a known encoding nor of a known format"):
        decoded(body)


def test_a_given_encoding_is_used():
    assert decoded("日本".encode("euc-jp"), "euc-jp") == ("日本".encode(), "euc_jp")
    assert decoded(b"abc", "UTF8") == (b"abc", "")
    with pytest.raises(Unreadable, match="it is not utf-8: byte 0xE9 at offset 3"):
        decoded("café".encode("latin-1"), "utf-8")
