"""The tokenizer verifies its bundled vocabulary and returns the byte offsets of tokens."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.text import tokens

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(texts)
def test_byte_ends_are_the_byte_offsets_at_which_tokens_end(text):
    ids = tokens.encode(text)
    pieces = [tokens.encoding().decode_single_token_bytes(int(token)) for token in ids]
    assert b"".join(pieces) == text.encode()
    assert tokens.byte_ends(ids).tolist() == np.cumsum([len(p) for p in pieces]).tolist()


def test_token_ids_and_byte_ends_are_uint32():
    assert tokens.encode("some text").dtype == np.uint32
    assert tokens.byte_ends(tokens.encode("some text")).dtype == np.uint32
    assert tokens.byte_ends(tokens.encode("")).shape == (0,)


def test_names_of_special_tokens_are_ordinary_text():
    ids = tokens.encode("a <|endoftext|> b")
    assert len(ids) > 3
    assert tokens.encoding().decode(ids.tolist()) == "a <|endoftext|> b"


def test_the_vocabulary_comes_from_the_package():
    tokens.encoding()
    assert (Path(os.environ["TIKTOKEN_CACHE_DIR"]) / tokens.VOCABULARY_FILE).is_file()


def test_a_damaged_vocabulary_is_refused_and_not_downloaded(monkeypatch, tmp_path):
    (tmp_path / tokens.VOCABULARY_FILE).write_bytes(b"damaged")
    monkeypatch.setattr(tokens, "files", lambda package: tmp_path)
    with pytest.raises(RuntimeError, match=r"is damaged: its sha256 is not 223921b7.*reinstall"):
        tokens.encoding.__wrapped__()
