"""Starts services once per session. Tests share them, because each test has a separate tenant.

With `--engine=postgres` or `citus` the services store data in databases of the session's
PostgreSQL server. Tests of features that only the embedded engine has are marked `embedded_only`,
and tests that a cluster of Citus cannot pass are marked `not_in_clusters`, each with the reason.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from hrag.cli.processes import RETRIEVER, free_addresses
from hrag.client import Client
from hrag.types import Document, Page
from tests.support.servers import stores
from tests.support.servers.openai_server import OpenAIServer
from tests.support.servers.processes import FAST, Running, running, started

_HERE = Path(__file__).parent
CHAT_KEY = "sk-test-4711"
# The retriever of `answering` runs at most this many answers concurrently.
AT_A_TIME = 2
MAX_TOKENS = 200
DOGS = "Dogs bark at night. They dig holes in gardens."
CATS = "猫睡觉。它们喜欢鱼。"

_numbers = count(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--engine=postgres` or `citus`, marks all tests of this folder as `postgres`.

    Tests that are marked `embedded_only` are skipped then, and with `citus` also those that are
    marked `not_in_clusters`.
    """
    engine = config.getoption("--engine")
    if engine == "embedded":
        return
    for item in items:
        if not item.path.is_relative_to(_HERE):
            continue
        item.add_marker(pytest.mark.postgres)
        if marker := item.get_closest_marker("embedded_only"):
            item.add_marker(pytest.mark.skip(reason=f"embedded only: {marker.args[0]}"))
        elif engine == "citus" and (marker := item.get_closest_marker("not_in_clusters")):
            item.add_marker(pytest.mark.skip(reason=f"not in clusters: {marker.args[0]}"))


@pytest.fixture(scope="session", autouse=True)
def _engine(request: pytest.FixtureRequest, _no_settings_from_outside: None) -> Iterator[None]:
    """Makes all services of the session store data in the engine that `--engine` names."""
    with ExitStack() as closing:
        if request.config.getoption("--engine") != "embedded":
            closing.enter_context(stores.in_postgres(request.getfixturevalue("postgres")))
        yield


@pytest.fixture(autouse=True)
def _no_store_left(tmp_path: Path) -> Iterator[None]:
    """Drops the databases of a test when the test has ended. pytest removes its folders."""
    yield
    stores.drop_below(tmp_path)


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory, _engine: None) -> Iterator[Running]:
    """Both services with pseudo-embeddings, which are fast and have meaningless scores."""
    with running(tmp_path_factory.mktemp("hash") / "store") as both:
        yield both


@pytest.fixture(scope="session")
def builtin_services(tmp_path_factory: pytest.TempPathFactory, _engine: None) -> Iterator[Running]:
    """Both services with the built-in embedder, whose vectors reflect the meaning of words."""
    with running(tmp_path_factory.mktemp("builtin") / "store", {}) as both:
        yield both


@pytest.fixture
def tenant() -> str:
    """The id of a tenant that no other test uses."""
    return f"tenant-{next(_numbers)}"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A folder for a new store. It does not exist yet."""
    return tmp_path / "store"


@pytest.fixture(scope="session")
def chat_endpoint(_no_settings_from_outside: None) -> Iterator[OpenAIServer]:
    """A chat endpoint whose replies and faults tests determine."""
    with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="session")
def answering(
    chat_endpoint: OpenAIServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Services with a chat model and few concurrent answers."""
    with running(tmp_path_factory.mktemp("chat") / "store", _with_model(chat_endpoint)) as both:
        yield both


@pytest.fixture(scope="module")
def metrics_address() -> str:
    """A free address for the metrics of a service that the tests of a module share."""
    return free_addresses(1)[0]


@pytest.fixture(scope="session")
def impatient(answering: Running, chat_endpoint: OpenAIServer) -> Iterator[Client]:
    """A client of a second retriever, which waits for the chat model for half a second only."""
    settings = {**_with_model(chat_endpoint), "HRAG_CHAT_TIMEOUT_S": "0.5"}
    with (
        started(RETRIEVER, answering.data_dir, settings) as retriever,
        Client(answering.indexer.address, retriever.address) as client,
    ):
        retriever.wait_until_serving()
        yield client


def _with_model(chat_endpoint: OpenAIServer) -> dict[str, str]:
    return {
        **FAST,
        "HRAG_CHAT_MODEL": "test-model",
        "HRAG_CHAT_BASE_URL": chat_endpoint.base_url,
        "HRAG_CHAT_API_KEY": CHAT_KEY,
        "HRAG_STANDALONE_TIMEOUT_S": "60",
        # Text is sent as it arrives from the first answer on.
        "HRAG_CHAT_REASONING_TAGS": "both",
        "HRAG_ANSWER_MAX_TOKENS": str(MAX_TOKENS),
        "HRAG_THREADS": str(AT_A_TIME + 1),
    }


@pytest.fixture
def stored(answering: Running, chat_endpoint: OpenAIServer, tenant: str) -> Iterator[str]:
    """A tenant of `answering` with two documents. Removes the endpoint's faults after the test."""
    answering.client.ingest(tenant, Document(DOGS, "dogs", title="Dogs"))
    pages = (Page("Fish swim. ", 1), Page(CATS, 2))
    answering.client.ingest(tenant, Document(pages, "cats", title="Cats"))
    yield tenant
    chat_endpoint.forget_faults()
