"""The tokenizer: tiktoken's `cl100k_base`, with its vocabulary in the package.

tiktoken downloads the vocabulary at first use. To avoid this, tiktoken's cache folder is set to
`hrag/text/data`, where the vocabulary's file has the name that tiktoken gives to the download. The
checksum of the file is verified first: tiktoken would download a damaged file again.
"""

import functools
import hashlib
import os
from importlib.resources import files

import numpy as np
import tiktoken
from numpy.typing import NDArray

VOCABULARY_FILE = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
"""The name of the vocabulary's file. tiktoken names it after the SHA-1 of the download's URL."""

_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"


@functools.cache
def encoding() -> tiktoken.Encoding:
    """Returns the tokenizer `cl100k_base`, which is loaded only once.

    Raises RuntimeError if the file of its vocabulary is damaged.
    """
    path = files("hrag.text.data") / VOCABULARY_FILE
    if hashlib.sha256(path.read_bytes()).hexdigest() != _SHA256:
        raise RuntimeError(f"{path} is damaged: its sha256 is not {_SHA256}; reinstall hrag")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(files("hrag.text.data"))
    return tiktoken.get_encoding("cl100k_base")


def encode(text: str) -> NDArray[np.uint32]:
    """Returns the tokens of a text: `uint32[n]`.

    The name of a special token, such as `<|endoftext|>`, is encoded like any other text.
    """
    return encoding().encode_to_numpy(text, disallowed_special=())


@functools.cache
def _byte_lengths() -> NDArray[np.uint32]:
    """Returns the length in bytes of each token: `uint32[size of the vocabulary]`."""
    vocabulary = encoding()
    lengths = np.zeros(vocabulary.n_vocab, np.uint32)
    for token_bytes in vocabulary.token_byte_values():
        lengths[vocabulary.encode_single_token(token_bytes)] = len(token_bytes)
    return lengths


def byte_ends(tokens: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Returns the end of each token, as an offset in the text's UTF-8 bytes: `uint32[n]`."""
    return np.cumsum(_byte_lengths()[tokens], dtype=np.uint32)
