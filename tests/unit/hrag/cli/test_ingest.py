"""`hrag ingest --create` creates a collection, or uses an existing one with equal settings."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from hrag.cli.ingest import create_collection
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
    """Returns a client of an indexer that already has the collection with these settings."""

    def refuse(tenant, name, request):
        raise CollectionExists(f"collection {name} exists")

    collection = Collection("t", "c", settings)
    return SimpleNamespace(create_collection=refuse, get_collection=lambda tenant, name: collection)


def test_a_new_collection_has_the_requested_settings():
    created = []
    client = SimpleNamespace(create_collection=lambda *arguments: created.append(arguments))
    create_collection(
        client, "t", "c", {"summaries": None, "analyzer": "simple", "embedder": NO_EMBEDDER}
    )
    assert created == [("t", "c", SettingsRequest(analyzer="simple", embedder="none"))]


@pytest.mark.parametrize(
    "requested",
    [{}, {"summaries": SummaryUnit.PAGE, "analyzer": "german", "embedder": "hash/4"}],
)
def test_an_existing_collection_with_the_requested_settings_is_used(requested):
    create_collection(client_with(SETTINGS), "t", "c", requested)


@pytest.mark.parametrize(
    ("requested", "says"),
    [
        ({"summaries": SummaryUnit.CHUNK}, "with summaries page, not chunk"),
        ({"analyzer": "english"}, "with analyzer german, not english"),
        ({"embedder": NO_EMBEDDER}, "with embedder hash/4, not none"),
    ],
)
def test_an_existing_collection_with_other_settings_is_refused(requested, says):
    with pytest.raises(Failure, match=f"collection c exists already, {says}"):
        create_collection(client_with(SETTINGS), "t", "c", requested)


def test_an_existing_collection_without_a_lexical_index_is_refused():
    with pytest.raises(Failure, match="with analyzer none, not english"):
        create_collection(
            client_with(replace(SETTINGS, analyzer="")), "t", "c", {"analyzer": "english"}
        )
