"""Example requests of all operations. Sent in order, from a new tenant on, each of them works.

CreateCollection, IngestDocument and IngestDocuments come first: they store the documents that the
others name. All examples are about one collection, so trying them changes nothing else.
"""

import json
from base64 import b64encode
from typing import Any

Schema = dict[str, Any]

TENANT, COLLECTION = "acme", "demo"
_PETS, _ANTS, _PDF = "pets", "ants", "pump.pdf"
_CHUNK = f"{_PETS}#0.0"
_QUESTION = "what do dogs do?"
_PLACE = {"tenantId": TENANT, "collection": COLLECTION}
_NAMED = {"tenantId": TENANT, "name": COLLECTION}
_SEARCH = {**_PLACE, "text": _QUESTION, "limit": 3}
_TEAM = {"match": {"field": "metadata.team", "values": [{"text": "garden"}]}}


def _pdf(text: str) -> bytes:
    """Returns a PDF of one page with one line of text."""
    shown = f"BT /F 12 Tf 20 40 Td ({text}) Tj ET".encode()
    page = b"/MediaBox[0 0 320 80]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>"
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R%s>>" % page,
        b"<</Length %d>>stream\n%s\nendstream" % (len(shown), shown),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    )
    file, table = b"%PDF-1.4\n", b"0000000000 65535 f \n"
    for number, content in enumerate(objects, 1):
        table += b"%010d 00000 n \n" % len(file)
        file += b"%d 0 obj%s\nendobj\n" % (number, content)
    size, start = len(objects) + 1, len(file)
    file += b"xref\n0 %d\n%strailer<</Size %d/Root 1 0 R>>\n" % (size, table, size)
    return file + b"startxref\n%d\n%%%%EOF\n" % start


_FILE = b64encode(_pdf("The pump is serviced every four weeks.")).decode()
_MANY = (
    {"documentId": _ANTS, "text": "Ants dig tunnels.", "metadata": {"team": "garden"}},
    {"documentId": _PDF, "source": _PDF, "content": _FILE},
)
_SHORT = {"query": _QUESTION, "retrieval_mode": "small_to_big", "limit": 3}
# The bodies of requests by operation id. A text is not JSON but lines of JSON.
BODIES: dict[str, Any] = {
    "CreateCollection": {**_NAMED, "settings": {"keepOriginals": True}},
    "GetCollection": _NAMED,
    "ListCollections": {"tenantId": TENANT},
    "DeleteCollection": _NAMED,
    "ReembedCollection": _NAMED,
    "SetAlias": {"tenantId": TENANT, "alias": "current", "collection": COLLECTION},
    "DeleteAlias": {"tenantId": TENANT, "alias": "current"},
    "ListAliases": {"tenantId": TENANT},
    "ListTenants": {"pageSize": 10},
    "IngestDocument": {
        **_PLACE,
        "document": {"documentId": _PETS, "title": "Pets", "text": "Cats sleep. Dogs bark."},
    },
    "IngestDocuments": "".join(
        f"{json.dumps({**_PLACE, 'document': document})}\n" for document in _MANY
    ),
    "UpdateMetadata": {**_PLACE, "documentId": _PETS, "metadata": {"reviewed": True}},
    "DeleteDocument": {**_PLACE, "documentId": _PETS},
    "DeleteDocuments": {**_PLACE, "filter": _TEAM},
    "GetDocument": {**_PLACE, "documentId": _PETS, "includeText": True},
    "GetPageImage": {**_PLACE, "documentId": _PDF, "page": 1, "spans": [{"charEnd": 8}]},
    "ListDocuments": {**_PLACE, "pageSize": 10},
    "CountDocuments": {**_PLACE, "filter": _TEAM},
    "GetIndexStatus": _PLACE,
    "Search": _SEARCH,
    "BatchSearch": {"searches": [_SEARCH, {**_SEARCH, "text": "who digs?"}]},
    "Answer": {"search": _SEARCH},
    "GetChunk": {**_PLACE, "chunkId": _CHUNK},
    "GetHierarchy": {**_PLACE, "chunkId": _CHUNK},
    "GetOriginal": {**_PLACE, "documentId": _PDF},
    "RetrieverServiceGetDocument": {**_PLACE, "documentId": _PETS, "includeText": True},
    "GetServerInfo": {},
    "Retrieve": _SHORT,
}
# The parameters of addresses, by name.
PARAMETERS = {
    "tenant_id": TENANT,
    "collection": COLLECTION,
    "id": _CHUNK,
    "document_id": _PDF,
}


def add_examples(paths: dict[str, Schema]) -> None:
    """Adds the examples to the operations of an OpenAPI document."""
    for operation in (each for methods in paths.values() for each in methods.values()):
        operation["parameters"] = [
            {**parameter, "example": PARAMETERS[parameter["name"]]}
            if parameter["name"] in PARAMETERS
            else parameter
            for parameter in operation["parameters"]
        ]
        body = BODIES.get(operation["operationId"])
        if body is not None:
            for content in operation["requestBody"]["content"].values():
                content["example"] = body
