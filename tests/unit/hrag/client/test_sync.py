"""The synchronous client is generated from the asyncio client and has the same methods."""

import inspect
import re
from pathlib import Path

import pytest

from hrag.client import AsyncClient, Client
from tests.support.sync_client import SOURCE, TARGETS, synchronous

STREAMS = {"answer", "ingest_many"}
METHODS = [name for name in dir(AsyncClient) if not name.startswith("_")]


@pytest.mark.parametrize("source", TARGETS, ids=lambda source: source.name)
def test_the_synchronous_client_is_up_to_date(source: Path) -> None:
    target = TARGETS[source]
    assert target.read_text("utf-8") == synchronous(source), (
        f"run `make sync-client` and commit hrag/client/{target.name}"
    )


def test_a_missing_sentence_about_asyncio_is_an_error_of_the_generator(tmp_path: Path) -> None:
    source = tmp_path / SOURCE.name
    source.write_text('"""Module."""\n\nclass AsyncClient: ...\n')
    with pytest.raises(ValueError, match="does not say 'For asyncio"):
        synchronous(source)


def test_both_clients_have_the_same_public_methods() -> None:
    assert [name for name in dir(Client) if not name.startswith("_")] == METHODS
    assert {"create_collection", "ingest", "search", "server_info", *STREAMS} <= set(METHODS)


@pytest.mark.parametrize("name", ["__init__", *METHODS])
def test_both_clients_have_methods_with_the_same_signature(name: str) -> None:
    asynchronous, synchronous_ = getattr(AsyncClient, name), getattr(Client, name)
    assert _signature(synchronous_) == _signature(asynchronous)
    assert synchronous_.__doc__ == asynchronous.__doc__
    assert not inspect.iscoroutinefunction(synchronous_)
    assert inspect.iscoroutinefunction(asynchronous) == (name not in {"__init__", *STREAMS})


def _signature(method: object) -> str:
    """Returns the signature as a text, without the differences that asyncio requires."""
    text = str(inspect.signature(method))
    text = text.replace(" | collections.abc.AsyncIterable[hrag.values.documents.Document]", "")
    return re.sub(r"\bAsync(?=Generator)", "", text)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_every_public_method_has_a_docstring(kind: type) -> None:
    assert kind.__doc__
    for name in METHODS:
        assert getattr(kind, name).__doc__.rstrip().endswith("."), name


def test_the_docstring_of_each_client_describes_how_it_may_be_shared() -> None:
    assert "threads" in Client.__doc__
    assert "event loop" in AsyncClient.__doc__
    assert "event loop" not in Client.__doc__
