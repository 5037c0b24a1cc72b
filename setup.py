"""Builds the files that git does not contain: the gRPC code from `protos/`, and the Cython kernels.

Both are written into the folders of the sources, and git ignores them, so that an editable
install and a wheel use the same files. Everything else about the package is in pyproject.toml.

Without a C++ compiler the kernels are left out. The SDK, and the commands that only call services
through it, do not need them. `hrag serve` reports which of them are missing. With
HRAG_REQUIRE_EXTENSIONS=1, a kernel that cannot be compiled is an error. The compiler and the linker
also get the options in HRAG_EXTENSION_FLAGS, with which `make fuzz` adds sanitizers.
"""

import os
import shutil
from pathlib import Path

from Cython.Build import cythonize
from grpc_tools import protoc
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

ROOT = Path(__file__).parent
PROTOS = ROOT / "protos"


def generate_grpc_code() -> None:
    """Writes the package `hrag/v1`, which must exist before setuptools looks for packages.

    The .proto files are copied next to the code, so that the folder of a wheel is an include path
    of protoc.
    """
    target = ROOT / "hrag" / "v1"
    target.mkdir(exist_ok=True)
    (target / "__init__.py").write_text(
        '"""Generated from protos/hrag/v1 by setup.py; do not edit."""\n'
    )
    well_known_types = Path(protoc.__file__).parent / "_proto"
    outputs = [f"--{kind}_out={ROOT}" for kind in ("python", "pyi", "grpc_python")]
    # The gateway shows the comments of the .proto files, and no other output contains them.
    outputs += [
        f"--descriptor_set_out={target / 'descriptors.pb'}",
        "--include_source_info",
        "--include_imports",
    ]
    sources = sorted(str(path) for path in PROTOS.rglob("*.proto"))
    if protoc.main(["protoc", f"-I{PROTOS}", f"-I{well_known_types}", *outputs, *sources]):
        raise SystemExit("protoc failed")
    for source in sources:
        shutil.copy(source, target)


class BuildExtensions(build_ext):
    """Treats a missing compiler as a failed compilation, which an optional extension may have."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except OSError as error:
            raise CompileError(str(error)) from error


generate_grpc_code()
NAMES = (
    "_analysis",
    "_bert_encoder",
    "_bm25",
    "_boundaries",
    "_cited",
    "_cited_document",
    "_climb",
    "_dense",
    "_folded_text",
    "_forward",
    "_graph",
    "_graph_file",
    "_join_candidates",
    "_json_scan",
    "_message_fields",
    "_passages",
    "_posting_lists",
    "_postings_writer",
    "_protojson",
    "_rows",
    "_sentence_encoder",
    "_sentences",
    "_term_matcher",
    "_unigram",
    "_unit_vector",
    "_vector_file",
)
# This module has the code of Cython's memoryviews, which all kernels share. It would otherwise be
# two thirds of the code of every kernel.
SHARED = "hrag_fast._cyutility"
# A fused multiply-add rounds once where two operations round twice. With it, scores would differ
# from those of the Python twin, and vectors would differ between processors.
# The loops of BM25 are aligned: they take up to a tenth longer if an unrelated change moves them to
# an address that is not a multiple of 64.
FLAGS = {
    "hrag_fast._bert_encoder": ["-ffp-contract=off"],
    "hrag_fast._bm25": ["-ffp-contract=off", "-falign-functions=64", "-falign-loops=64"],
    "hrag_fast._dense": ["-ffp-contract=off"],
    "hrag_fast._graph": ["-ffp-contract=off"],
    "hrag_fast._graph_file": ["-ffp-contract=off"],
    "hrag_fast._sentence_encoder": ["-ffp-contract=off"],
    SHARED: ["-O1"],
}
sources = {f"hrag_fast.{name}": f"hrag_fast/{name}.pyx" for name in NAMES}
sources[SHARED] = "hrag_fast/_cyutility.c"
further = os.environ.get("HRAG_EXTENSION_FLAGS", "").split()
extensions = [
    Extension(
        name,
        [source],
        extra_compile_args=["-O3", "-g0", *FLAGS.get(name, []), *further],
        extra_link_args=further,
    )
    for name, source in sources.items()
]
cores = os.cpu_count() or 1
modules = cythonize(
    extensions,
    nthreads=cores,
    shared_utility_qualified_name=SHARED,
    compiler_directives={"language_level": "3"},
)
# `optional` is set here, because Cython copies the extensions without it.
for module in modules:
    module.optional = os.environ.get("HRAG_REQUIRE_EXTENSIONS") != "1"
setup(
    cmdclass={"build_ext": BuildExtensions},
    ext_modules=modules,
    options={"build_ext": {"parallel": cores}},
)
