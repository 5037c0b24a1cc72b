"""A wheel that is built from tracked files only is complete and runs without a source tree."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from hrag.cli.processes import ServiceProcesses, free_addresses
from hrag.cli.terminal import ExitCode
from hrag.client import Client
from hrag.types import Document

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hrag", "hrag_fast", "indexer_svc", "retriever_svc")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def _tracked(*folders: str) -> list[str]:
    """Returns the files that git tracks in these folders, or in all folders."""
    command = ["git", "ls-files", "-z", *folders]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    return [name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution of the files that git tracks, without files of earlier builds."""
    copy = tmp_path_factory.mktemp("copy")
    for name in _tracked():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    built = tmp_path_factory.mktemp("source")
    build_program = f"from setuptools.build_meta import build_sdist; build_sdist({str(built)!r})"
    subprocess.run([sys.executable, "-c", build_program], cwd=copy, check=True, capture_output=True)
    (archive,) = built.glob("hrag-*.tar.gz")
    return archive


def _wheel_of(source: Path, folder: Path, **environment: str) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    subprocess.run(
        [*command, str(folder), "--no-build-isolation", str(source)],
        env={**os.environ, **environment},
        check=True,
    )
    (wheel,) = folder.glob("hrag-*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _wheel_of(source, tmp_path_factory.mktemp("wheel"), HRAG_REQUIRE_EXTENSIONS="1")


@pytest.fixture(scope="module")
def client_wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that was built without a compiler."""
    folder = tmp_path_factory.mktemp("client")
    return _wheel_of(source, folder, PATH=str(folder))


@pytest.fixture(scope="module")
def client_command(client_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`hrag` in an environment with the wheel built without a compiler, and its dependencies."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python")]
    install = [*pip, "install", "--quiet", "--only-binary", ":all:", str(client_wheel)]
    subprocess.run(install, check=True)
    return environment / "bin" / "hrag"


def _run(folder: Path, *command: str, **environment: str) -> tuple[int, str, str]:
    """Runs a command that cannot import the source tree.

    Returns its exit code, standard output and standard error.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        env={**inherited, **environment},
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


def _run_with_libraries(wheel: Path, folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Runs `hrag` from the wheel with this environment's libraries, but not its hrag."""
    installed = folder / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    script = (
        "import sys, hrag, hrag.cli; "
        f"assert hrag.__file__.startswith({str(installed)!r}), hrag.__file__; "
        "sys.argv[0] = 'hrag'; hrag.cli.main()"
    )
    python = os.path.realpath(sys.executable)
    paths = f"{installed}{os.pathsep}{sysconfig.get_path('purelib')}"
    return _run(folder, python, "-c", script, *arguments, PYTHONPATH=paths)


def test_the_wheel_has_every_module_and_extension(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    kernels = {f"hrag_fast/{path.stem}" for path in (ROOT / "hrag_fast").glob("*.pyx")}
    expected = {name for name in _tracked(*PACKAGES) if not name.endswith((".h", ".pxd", ".pyx"))}
    expected |= {kernel + sysconfig.get_config_var("EXT_SUFFIX") for kernel in kernels}
    for path in (ROOT / "protos").rglob("*.proto"):
        proto = path.relative_to(ROOT / "protos")
        expected |= {str(proto), *(f"{proto.with_suffix('')}_pb2{end}" for end in (".py", ".pyi"))}
    assert expected | {"hrag/v1/descriptors.pb"} <= names


def test_the_demo_runs_from_the_wheel_only(wheel, tmp_path):
    text = tmp_path / "bees.md"
    text.write_text("# Bees\n\nBees dance to tell where flowers are. " + "They fly far. " * 50)
    arguments = ("demo", str(text), "--searches", "2")
    code, output, errors = _run_with_libraries(wheel, tmp_path, *arguments)
    assert code == 0, output + errors
    assert "Bees dance to tell where flowers are." in output


def test_without_a_compiler_only_the_kernels_are_missing(wheel, client_wheel):
    whole, partial = (set(zipfile.ZipFile(file).namelist()) for file in (wheel, client_wheel))
    left_out = {name for name in whole - partial if ".dist-info/" not in name}
    assert left_out == {name for name in whole if name.endswith(".so")}
    assert left_out


def test_without_a_compiler_a_required_kernel_ends_the_build(source, tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        _wheel_of(source, tmp_path, PATH=str(tmp_path), HRAG_REQUIRE_EXTENSIONS="1")


def test_a_client_without_kernels_and_server_parts_searches(client_command, tmp_path):
    indexer, retriever = free_addresses(2)
    settings = {"HRAG_EMBEDDER": "hash:64"}
    with ServiceProcesses(
        tmp_path / "data", indexer, retriever, logs=tmp_path, settings=settings
    ) as both:
        both.wait_until_serving(60)
        with Client(indexer=indexer, retriever=retriever) as client:
            client.ingest("acme", Document("Bees dance.", document_id="bees"))
        arguments = ("search", "bees", "--tenant", "acme", "--retriever", retriever)
        code, output, errors = _run(tmp_path, str(client_command), *arguments)
    assert code == 0, output + errors
    assert "«Bees» dance." in output


def test_a_client_says_which_extra_a_server_needs(client_command, tmp_path):
    assert _run(tmp_path, str(client_command), "--version")[:2] == (0, f"hrag {version('hrag')}\n")
    code, _, errors = _run(tmp_path, str(client_command), "serve")
    assert code == ExitCode.NOT_INSTALLED
    assert "pip install '.[server]'" in errors
    assert errors.count("\n") == 1


def test_a_server_without_kernels_names_the_packages_that_compile_them(client_wheel, tmp_path):
    code, _, errors = _run_with_libraries(client_wheel, tmp_path, "serve")
    assert code == ExitCode.NOT_INSTALLED
    assert "install g++ and Python's headers" in errors
    assert errors.count("\n") == 1
