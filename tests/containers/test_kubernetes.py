"""The manifests are valid for the schemas of Kubernetes. Nothing is started."""

import subprocess

import pytest

from tests.containers.engine import ENGINE_FOLDER, ROOT

pytestmark = pytest.mark.containers

MANIFEST = ROOT / "deploy" / "kubernetes.yaml"
RESOURCES = {MANIFEST: 3, MANIFEST.with_name("kubernetes-postgres.yaml"): 7}
VALIDATOR = ENGINE_FOLDER / "venv" / "bin" / "kubernetes-validate"


def _validate(path):
    assert VALIDATOR.exists(), "no validator; run tests/containers/prepare"
    return subprocess.run(
        [VALIDATOR, "--strict", path], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("manifest", RESOURCES, ids=lambda path: path.name)
def test_every_field_of_the_manifests_is_known_to_kubernetes(manifest):
    done = _validate(manifest)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("passed for resource") == RESOURCES[manifest]


def test_an_invalid_field_is_detected(tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(MANIFEST.read_text("utf-8").replace("shareProcess", "sharedProcess"))
    assert _validate(wrong).returncode != 0
