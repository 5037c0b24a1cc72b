"""Collections that `hrag ingest --create` makes, or finds made already."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from hrag.cli.ingest import _create_collection
from hrag.cli.terminal import Failure
from hrag.errors import CollectionExists
from hrag.types import (
    NO_EMBEDDER,
    Collection,
    CollectionSettings,
    SettingsRequest,
    SummaryUnit,
    TreeSettings,
)

SETTINGS = CollectionSettings(
    TreeSettings(), "hash/4", 4, summaries=SummaryUnit.PAGE, analyzer="german/1"
)


def client_with(settings: CollectionSettings) -> SimpleNamespace:
    """A client of an indexer that has the collection already."""

    def create_collection(tenant, name, request):
        raise CollectionExists(f"collection {name} exists")

    collection = Collection("t", "c", settings)
    return SimpleNamespace(
        create_collection=create_collection, get_collection=lambda tenant, name: collection
    )


def test_a_new_collection_gets_what_was_asked_for():
    made = []
    client = SimpleNamespace(create_collection=lambda *given: made.append(given))
    _create_collection(
        client, "t", "c", {"summaries": None, "analyzer": "simple", "embedder": NO_EMBEDDER}
    )
    assert made == [("t", "c", SettingsRequest(analyzer="simple", embedder="none"))]


@pytest.mark.parametrize(
    "wanted",
    [{}, {"summaries": SummaryUnit.PAGE, "analyzer": "german", "embedder": "hash/4"}],
)
def test_a_collection_that_is_as_it_should_be_is_used(wanted):
    _create_collection(client_with(SETTINGS), "t", "c", wanted)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"summaries": SummaryUnit.CHUNK}, "with summaries page, not chunk"),
        ({"analyzer": "english"}, "with analyzer german, not english"),
        ({"embedder": NO_EMBEDDER}, "with embedder hash/4, not none"),
    ],
)
def test_a_collection_of_other_settings_is_refused(wanted, says):
    with pytest.raises(Failure, match=f"collection c exists already, {says}"):
        _create_collection(client_with(SETTINGS), "t", "c", wanted)


def test_a_collection_without_a_lexical_index_says_so():
    with pytest.raises(Failure, match="with analyzer none, not english"):
        _create_collection(
            client_with(replace(SETTINGS, analyzer="")), "t", "c", {"analyzer": "english"}
        )
