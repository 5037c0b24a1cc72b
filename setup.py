"""Builds what is not in the tree: the gRPC code from `protos/`, the Cython kernels.

Both land beside the sources, ignored by git, so that an editable install and a wheel
read the same files. Everything else about the package is in pyproject.toml.
"""

from pathlib import Path

from Cython.Build import cythonize
from grpc_tools import protoc
from setuptools import Extension, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
PROTOS = ROOT / "protos"


class BuildPy(build_py):
    """Generates `hrag/v1` before the packages are collected."""

    def run(self) -> None:
        generate_grpc_code()
        super().run()


def generate_grpc_code() -> None:
    target = ROOT / "hrag" / "v1"
    target.mkdir(exist_ok=True)
    (target / "__init__.py").write_text('"""Generated from protos/hrag/v1; nothing by hand."""\n')
    sources = sorted(str(path) for path in PROTOS.rglob("*.proto"))
    outputs = [f"--{kind}_out={ROOT}" for kind in ("python", "pyi", "grpc_python")]
    if protoc.main(["protoc", f"-I{PROTOS}", f"-I{well_known_types()}", *outputs, *sources]):
        raise SystemExit("protoc failed")


def well_known_types() -> Path:
    return Path(protoc.__file__).parent / "_proto"


kernels = Extension(
    "hrag_fast._kernels",
    ["hrag_fast/_kernels.pyx"],
    extra_compile_args=["-O3"],
)

setup(
    cmdclass={"build_py": BuildPy},
    ext_modules=cythonize([kernels], compiler_directives={"language_level": "3"}),
)
