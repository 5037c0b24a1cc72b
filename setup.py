"""Builds what git does not hold: the gRPC code from `protos/` and the Cython kernels.

Both are written beside the sources, ignored by git, so that an editable install and a wheel
use the same files. Everything else about the package is in pyproject.toml.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from grpc_tools import protoc
from setuptools import Extension, setup

ROOT = Path(__file__).parent
PROTOS = ROOT / "protos"


def generate_grpc_code() -> None:
    """Writes `hrag/v1`, before setuptools looks for packages: it must exist by then."""
    target = ROOT / "hrag" / "v1"
    target.mkdir(exist_ok=True)
    (target / "__init__.py").write_text(
        '"""Generated from protos/hrag/v1 by setup.py; do not edit."""\n'
    )
    well_known_types = Path(protoc.__file__).parent / "_proto"
    outputs = [f"--{kind}_out={ROOT}" for kind in ("python", "pyi", "grpc_python")]
    sources = sorted(str(path) for path in PROTOS.rglob("*.proto"))
    if protoc.main(["protoc", f"-I{PROTOS}", f"-I{well_known_types}", *outputs, *sources]):
        raise SystemExit("protoc failed")


generate_grpc_code()
NAMES = (
    "_analysis",
    "_bm25",
    "_boundaries",
    "_cited",
    "_climb",
    "_forward",
    "_graph",
    "_passages",
    "_posting_lists",
    "_postings_writer",
    "_sentences",
)
# A fused multiply-add rounds once where numpy rounds twice: scores would differ from the twin's.
FLAGS = {"_bm25": ["-ffp-contract=off"]}
kernels = [
    Extension(
        f"hrag_fast.{name}",
        [f"hrag_fast/{name}.pyx"],
        extra_compile_args=["-O3", *FLAGS.get(name, [])],
    )
    for name in NAMES
]
cores = os.cpu_count() or 1
setup(
    ext_modules=cythonize(kernels, nthreads=cores, compiler_directives={"language_level": "3"}),
    options={"build_ext": {"parallel": cores}},
)
