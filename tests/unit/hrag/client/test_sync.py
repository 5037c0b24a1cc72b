"""The synchronous client says and takes what the asyncio one does, because it is made from it."""

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


def test_a_sentence_that_only_one_client_can_say_is_not_lost(tmp_path: Path) -> None:
    source = tmp_path / SOURCE.name
    source.write_text('"""Module."""\n\nclass AsyncClient: ...\n')
    with pytest.raises(ValueError, match="does not say 'For asyncio"):
        synchronous(source)


def test_both_have_the_same_public_methods() -> None:
    assert [name for name in dir(Client) if not name.startswith("_")] == METHODS
    assert {"create_collection", "ingest", "search", "server_info", *STREAMS} <= set(METHODS)


@pytest.mark.parametrize("name", ["__init__", *METHODS])
def test_a_method_takes_and_returns_the_same(name: str) -> None:
    asynchronous, synchronous_ = getattr(AsyncClient, name), getattr(Client, name)
    assert _signature(synchronous_) == _signature(asynchronous)
    assert synchronous_.__doc__ == asynchronous.__doc__
    assert not inspect.iscoroutinefunction(synchronous_)
    assert inspect.iscoroutinefunction(asynchronous) == (name not in {"__init__", *STREAMS})


def _signature(method: object) -> str:
    """Names, kinds, types and defaults, whatever is asynchronous in them."""
    text = str(inspect.signature(method))
    text = text.replace(" | collections.abc.AsyncIterable[hrag.values.documents.Document]", "")
    return re.sub(r"\bAsync(?=Generator)", "", text)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_every_public_method_says_what_it_does(kind: type) -> None:
    assert kind.__doc__
    for name in METHODS:
        assert getattr(kind, name).__doc__.rstrip().endswith("."), name


def test_each_client_says_how_it_may_be_shared() -> None:
    assert "threads" in Client.__doc__
    assert "event loop" in AsyncClient.__doc__
    assert "event loop" not in Client.__doc__
