"""The OpenAPI document contains the comments of the .proto files."""

from hrag.gateway.reference.proto_comments import read_comments
from hrag.gateway.services.methods import METHODS
from tests.support.servers.gateways import Gateway


def test_every_method_is_in_the_document_with_its_comment(gateway: Gateway) -> None:
    document = gateway.send("GET", "/openapi.json").json
    assert set(document["paths"]) == {method.path for method in METHODS}
    for path in document["paths"].values():
        assert len(path["post"]["description"]) > 20
        assert path["post"]["summary"]


def test_every_field_of_a_request_has_a_comment() -> None:
    """All fields have a comment in the .proto files, so the reader must find a comment for each."""
    comments = read_comments()
    messages = {method.descriptor.input_type for method in METHODS}
    for message in messages:
        for field in message.fields:
            assert comments[field.full_name]


def test_lists_in_comments_keep_their_lines() -> None:
    lines = read_comments()["hrag.v1.IndexerService.CreateCollection"].splitlines()
    assert "* `INVALID_ARGUMENT`: a setting breaks its rule." in lines
