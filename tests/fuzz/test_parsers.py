"""Other parsers of external bytes: files, credentials, conditions of the command line.

Each rejects invalid input with its own error, quickly.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import typer
from structlog.testing import capture_logs

from hrag.auth.keys import ApiKeys
from hrag.auth.web_tokens import TokenPolicy, WebTokens
from hrag.cli.filters import parse_filters
from hrag.errors import InvalidArgument, Unauthenticated
from hrag.sentences import sentence_ends
from hrag.types import MARKDOWN, MAX_TITLE_BYTES, PDF, PLAIN_TEXT, Document, TreeSettings
from indexer_svc.chunker import build_tree
from indexer_svc.extract import extract
from indexer_svc.parsers.formats import parse
from tests.credentials import AUDIENCE, ISSUER, new_issuer, new_key, write_jwks
from tests.fuzz.damage import damaged
from tests.fuzz.test_fuzz import SEED
from tests.pdfs import Bookmark, encrypted_pdf, pdf_of, pdf_without_text

FEW, MANY = 150, 10_000
_SOON_S = 5.0  # For some kilobytes on a busy machine; a quiet one needs a hundredth.
_SMALL = (TreeSettings((32, 64, 128)), TreeSettings((32, 33, 40), 0.5, 1))

_PDFS = (
    pdf_of(["Fish swim.\nDogs bark.", "Cats.", ""], [Bookmark("One", 1, 0), Bookmark("B", 2, 1)]),
    encrypted_pdf(["Nobody knows."], ""),
    encrypted_pdf(["Nobody knows."], "password"),
    pdf_without_text(),
    b"/Count 99999999 /Kids [6 0 R 6 0 R] /Length -1 /Prev 0 stream << >> endobj %%EOF",
)
_MARKDOWNS = (
    b"---\na: b\n---\n# One *x* `y`\n\n- a\n  - b\n    1. c\n\n> d\n\n```\n# no\n```\n\nTwo\n===\n",
    b"---\ntitle: \"T \\u00e9\" # c\nb: 'it''s'\n---\nTwo lines\nof title\n===\n",
    "[x]: y 't'\n# [x] ![i](u) &amp; \\# 猫\n<div>\n# no\n</div>\n\n    # no\n| a |\n".encode(),
    b"#" * 50 + b"[" * 50 + b"> " * 50 + b"- " * 50 + b"*_`<!--?>\r\n" * 20,
)
_TEXTS = (
    "Dogs bark. 猫睡觉。 A. B. e.g. c! \u3000\f\n\n- d\n# E\n".encode() * 5,
    "e\u0301👩‍👩‍👧‍👦🇩🇪\u200b\ufeff".encode() * 20,
    b"\xef\xbb\xbf" + b"." * 300 + b" \r\n\x00" * 20,
)


def _times(count: int) -> pytest.MarkDecorator:
    slow = pytest.param(MANY, marks=[pytest.mark.slow, pytest.mark.timeout(600)])
    return pytest.mark.parametrize("count", [count, slow])


def _damaged(whole: Sequence[bytes], count: int) -> Iterator[bytes]:
    draw = random.Random(SEED)
    for _ in range(count):
        yield damaged(draw.choice(whole), draw, whole)


@_times(FEW)
@pytest.mark.parametrize(
    ("mime_type", "whole"),
    [(PDF, _PDFS), (MARKDOWN, _MARKDOWNS), (PLAIN_TEXT, _TEXTS)],
    ids=["pdf", "markdown", "text"],
)
def test_a_damaged_file_is_parsed_or_refused(
    mime_type: str, whole: Sequence[bytes], count: int
) -> None:
    extract(Document(whole[0], mime_type=mime_type), 1 << 20, parse)
    read = Counter[bool]()
    for content in _damaged(whole, count):
        began = time.perf_counter()
        try:
            extracted = extract(Document(content, mime_type=mime_type), 1 << 20, parse)
        except InvalidArgument:
            read[False] += 1
        else:
            read[True] += 1
            parsed = extracted.parsed
            assert len(extracted.title.encode()) <= MAX_TITLE_BYTES
            assert sentence_ends(parsed.text)[-1] == len(parsed.text)
            for settings in _SMALL:
                build_tree(parsed, settings)
        assert time.perf_counter() - began < _SOON_S, content.hex()
    assert min(read[True], read[False]) > count / 20


def _api_key(folder: Path) -> tuple[str, Callable[[str], object]]:
    return new_key(folder / "keys.json"), ApiKeys(folder / "keys.json")


def _web_token(folder: Path) -> tuple[str, Callable[[str], object]]:
    issuer = new_issuer()
    terms = TokenPolicy(ISSUER, AUDIENCE, 30, "tenants", "role")
    return issuer.token(), WebTokens(write_jwks(folder / "jwks.json", issuer), terms)


@_times(FEW)
@pytest.mark.parametrize("made", [_api_key, _web_token])
def test_a_damaged_credential_is_refused(
    made: Callable[[Path], tuple[str, Callable[[str], object]]], count: int, tmp_path: Path
) -> None:
    right, admit = made(tmp_path)
    admit(right)
    refused = 0
    with capture_logs():
        for raw in _damaged([right.encode(), b"..", b"hrag__"], count):
            credential = raw.decode("ascii", "ignore")  # The guard refuses anything else.
            if credential != right:
                with pytest.raises(Unauthenticated):
                    admit(credential)
                refused += 1
    assert refused > count / 2


@_times(FEW)
def test_a_damaged_condition_is_parsed_or_refused(count: int) -> None:
    whole = (
        b'team=["a","b"]', b"year>=2026", b"date<2026-11-21T10:00:00Z", b"!title", b"a.b!=true",
        b"a=" + b"[" * 5000, b"a=" + b"9" * 5000, b"a>1e999",
    )  # fmt: skip
    read = Counter[bool]()
    for raw in _damaged(whole, count):
        try:
            parse_filters([raw.decode("utf-8", "surrogateescape")])
            read[True] += 1
        except typer.BadParameter:
            read[False] += 1
    assert min(read.values()) > count / 20
