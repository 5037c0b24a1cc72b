"""The wheel of a clean build is whole: it runs where there is no source tree."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hrag", "hrag_fast", "indexer_svc", "retriever_svc")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the files that git tracks, without what builds have left."""
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copyfile(ROOT / name, target)
    built = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    subprocess.run([*command, str(built), "--no-build-isolation", str(source)], check=True)
    (found,) = built.glob("hrag-*.whl")
    return found


def test_it_has_every_module_and_extension(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            assert str(path.relative_to(ROOT)) in names
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for path in (ROOT / "hrag_fast").glob("*.pyx"):
        assert f"hrag_fast/{path.stem}{suffix}" in names


def test_the_demo_runs_from_it_alone(wheel, tmp_path):
    """The libraries are this environment's; ours come out of the wheel."""
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    libraries = sysconfig.get_path("purelib")
    text = tmp_path / "bees.md"
    text.write_text("# Bees\n\nBees dance to tell where flowers are. " + "They fly far. " * 50)
    script = (
        "import hrag, hrag.cli, sys; "
        f"assert hrag.__file__.startswith({str(installed)!r}), hrag.__file__; "
        "sys.argv[0] = 'hrag'; hrag.cli.main()"
    )
    done = subprocess.run(
        [os.path.realpath(sys.executable), "-c", script, "demo", str(text), "--searches", "2"],
        env={**os.environ, "PYTHONPATH": f"{installed}{os.pathsep}{libraries}"},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Bees dance to tell where flowers are." in done.stdout
