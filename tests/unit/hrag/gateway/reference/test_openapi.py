"""The OpenAPI document contains the comments of the .proto files."""

from importlib.resources import files

from hrag.gateway.reference.openapi import document
from hrag.gateway.reference.original_path import ORIGINAL
from hrag.gateway.reference.proto_comments import read_comments
from hrag.gateway.reference.rest_paths import HIERARCHY, RETRIEVE, STATUS, rest_schemas
from hrag.gateway.services.methods import METHODS
from hrag.v1 import filter_pb2, indexer_pb2, retriever_pb2, types_pb2
from tests.support.servers.gateways import Gateway


def test_every_method_is_in_the_document_with_its_comment(gateway: Gateway) -> None:
    served = gateway.send("GET", "/openapi.json").json
    methods = {method.path for method in METHODS}
    assert set(served["paths"]) == methods | {RETRIEVE, HIERARCHY, STATUS, ORIGINAL}
    for operations in served["paths"].values():
        for operation in operations.values():
            assert len(operation["description"]) > 20
            assert operation["summary"]


def test_every_operation_has_its_own_id_and_an_example() -> None:
    operations = [
        operation
        for methods in document(METHODS, read_comments())["paths"].values()
        for operation in methods.values()
    ]
    ids = [operation["operationId"] for operation in operations]
    assert sorted(set(ids)) == sorted(ids)
    for operation in operations:
        for content in operation.get("requestBody", {"content": {}})["content"].values():
            assert "example" in content, operation["operationId"]
        for parameter in operation["parameters"]:
            assert "example" in parameter or not parameter.get("required"), parameter["name"]


def test_both_introductions_name_what_is_no_post_of_one_object() -> None:
    described = document(METHODS, read_comments())
    reference = files("hrag.gateway").joinpath("docs", "index.html").read_text("utf-8")
    others = {method.name for method in METHODS if method.descriptor.client_streaming}
    paths = described["paths"]
    others |= {f"/{path.split('/')[1]}" for path in paths if "get" in paths[path]}
    assert others == {"IngestDocuments", "/api", "/original"}
    for introduction in (reference, described["info"]["description"]):
        assert [name for name in sorted(others) if name not in introduction] == []


def test_no_rule_makes_a_type_of_its_own() -> None:
    """Generators of clients make a union of types from `anyOf`; they ignore `if` and others."""
    schemas = document(METHODS, read_comments())["components"]["schemas"]
    fields = (
        field for schema in schemas.values() for field in schema.get("properties", {}).values()
    )
    for schema in (*schemas.values(), *fields):
        assert not {"anyOf", "oneOf", "allOf"} & schema.keys()


def test_the_short_paths_use_no_name_of_a_message() -> None:
    fields = {field.name: {} for field in retriever_pb2.SearchRequest.DESCRIPTOR.fields}
    protos = (file.DESCRIPTOR for file in (filter_pb2, indexer_pb2, retriever_pb2, types_pb2))
    messages = {
        name for file in protos for name in (*file.message_types_by_name, *file.enum_types_by_name)
    }
    assert not messages & set(rest_schemas(fields))


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
