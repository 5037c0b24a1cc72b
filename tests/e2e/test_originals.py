"""A collection that keeps originals returns the files of its documents, through every door."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.errors import CollectionNotFound, InvalidArgument, NotSupported, OriginalNotFound
from hrag.types import PDF, Document, SearchMode, SettingsRequest, Span
from hrag.values.formats import PNG
from indexer_svc.text_recognition import has_ocr_extra
from tests.support.documents.pdfs import pdf_of
from tests.support.documents.pictures import page_with_places, picture_file
from tests.support.servers.gateways import gateway_to
from tests.support.servers.processes import Running

# The file has more bytes than one reply, so it is read in parts.
FILE = b"".join(b"word %d" % number + b" " * 200_000 for number in range(18))
Run = Callable[..., Any]


@pytest.fixture
def run(services: Running, tenant: str) -> Run:
    """A function that runs a command for the test's tenant and returns its result."""
    env = {
        "HRAG_INDEXER_ADDRESS": services.indexer.address,
        "HRAG_RETRIEVER_ADDRESS": services.retriever.address,
        "NO_COLOR": "1",
    }

    def invoke(*arguments: object, code: int = 0) -> Any:
        result = CliRunner().invoke(app, [*map(str, arguments), "--tenant", tenant], env=env)
        assert result.exit_code == code, result.output
        return result

    return invoke


def test_a_file_is_returned_by_the_command_line_and_over_http(run, services, tenant, tmp_path):
    run("collections", "create", "kept", "--keep-originals", "--embedder", "none")
    content = "# Title\n\nThe text of a file. Ünïcode.\n".encode("windows-1252")
    (tmp_path / "guide.md").write_bytes(content)
    run("ingest", tmp_path / "guide.md", "--collection", "kept")
    shown = run("get", "guide.md", "--collection", "kept").stdout
    assert f"{len(content)} bytes" in shown
    target = tmp_path / "copy.md"
    wrote = run("original", "guide.md", "--collection", "kept", "-o", target)
    assert target.read_bytes() == content
    assert f"{len(content)} bytes of text/markdown" in wrote.stderr
    assert run("original", "guide.md", "--collection", "kept").stdout_bytes == content
    missing = run("original", "other.md", "--collection", "kept", "-o", tmp_path / "x", code=3)
    assert "other.md" in missing.stderr
    assert not (tmp_path / "x").exists()
    query = f"tenant_id={tenant}&collection=kept&document_id=guide.md"
    with gateway_to(services.indexer.address, services.retriever.address) as gateway:
        reply = gateway.send("GET", f"/original?{query}")
        assert (reply.status, reply.body) == (200, content)
        assert reply.headers["content-disposition"].endswith("guide.md")
        for missing in ("tenant_id", "document_id"):
            parameters = "&".join(one for one in query.split("&") if missing not in one)
            reply = gateway.send("GET", f"/original?{parameters}")
            assert (reply.status, reply.field) == (400, missing)
        body = {"tenantId": tenant, "collection": "kept", "documentId": "guide.md", "start": 2}
        part = gateway.post("/hrag.v1.RetrieverService/GetOriginal", body).json
        assert (part["start"], part["sizeBytes"]) == ("2", str(len(content)))


def test_a_large_file_is_read_in_parts_and_leaves_with_its_document(services, tenant):
    client = services.client
    request = SettingsRequest(keep_originals=True, embedder="none", level_sizes=(8192, 32768))
    assert client.create_collection(tenant, "c", request).settings.keep_originals
    client.ingest(tenant, Document(FILE, "d", source="d.txt"), collection="c")
    original = client.get_original(tenant, "d", collection="c")
    assert (original.content == FILE, original.source) == (True, "d.txt")
    assert original.original.sha256 == sha256(FILE).hexdigest()
    part = client.get_original_part(tenant, "d", 100, collection="c")
    assert 2 << 20 < len(part.content) < len(FILE) - 100
    assert part.content == FILE[100 : part.end]
    assert client.get_document(tenant, "d", collection="c").original_bytes == len(FILE)
    with pytest.raises(InvalidArgument, match=f"which has {len(FILE)} bytes"):
        client.get_original_part(tenant, "d", len(FILE) + 1, collection="c")
    with pytest.raises(CollectionNotFound):
        client.get_original(f"{tenant}-2", "d", collection="c")
    used = client.index_status(tenant, collection="c").tenant.stored_bytes
    client.ingest(tenant, Document("Only a text.", "d"), collection="c")
    with pytest.raises(OriginalNotFound):
        client.get_original(tenant, "d", collection="c")
    assert client.index_status(tenant, collection="c").tenant.stored_bytes < used - len(FILE)


def test_by_default_no_file_is_kept(services, tenant):
    services.client.ingest(tenant, Document(b"A text file.", "d"))
    assert services.client.get_document(tenant, "d").original_bytes == 0
    with pytest.raises(OriginalNotFound, match="keep_originals"):
        services.client.get_original(tenant, "d")


def test_a_page_shows_where_a_passage_is_printed(services, tenant):
    client = services.client
    request = SettingsRequest(keep_originals=True, embedder="none", level_sizes=(32, 64))
    client.create_collection(tenant, "c", request)
    pages = [f"Page {n} begins here.\nIts second line names the number {n}." for n in range(160)]
    client.ingest(tenant, Document(pdf_of(pages), "d", mime_type=PDF), collection="c")
    found = client.search(tenant, '"names the number 77"', collection="c", mode=SearchMode.STANDARD)
    chunk = found.passages[0].chunk
    (page,) = (n for n in range(chunk.first_page, chunk.last_page + 1) if n == 78)
    image = client.get_page_image(tenant, "d", page, [chunk.span], collection="c")
    assert image.png.startswith(b"\x89PNG")
    assert (image.width_points, image.height_points) == (595, 842)
    assert [box.span for box in image.boxes] == [0, 0]
    assert image.boxes[0].bottom <= image.boxes[1].top + 0.002
    assert image == client.get_page_image(tenant, "d", page, [chunk.span], collection="c")
    with pytest.raises(InvalidArgument, match="has 160 pages"):
        client.get_page_image(tenant, "d", 161, collection="c")
    client.ingest(tenant, Document(b"A text file.", "text"), collection="c")
    with pytest.raises(NotSupported):
        client.get_page_image(tenant, "text", 1, collection="c")


def test_a_page_is_written_by_the_command_line_with_the_lines_of_a_chunk(
    run, services, tenant, tmp_path
):
    request = SettingsRequest(keep_originals=True, embedder="none", level_sizes=(32, 64))
    services.client.create_collection(tenant, "c", request)
    pages = ["One line.", "Pumps & <valves> are shown here.\nThis is the second line."]
    services.client.ingest(tenant, Document(pdf_of(pages), "d.pdf", mime_type=PDF), collection="c")
    place = ("--collection", "c")
    png, svg = tmp_path / "page.png", tmp_path / "page.SVG"
    wrote = run("page", "d.pdf", "--page", 2, "-o", png, *place)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "page 2, 910 x 1287 pixels" in wrote.stderr
    assert run("page", "d.pdf", *place, "--dpi", 36).stdout_bytes[:4] == b"\x89PNG"
    found = services.client.search(tenant, "valves", collection="c", mode=SearchMode.STANDARD)
    chunk = found.passages[0].chunk
    wrote = run("page", "d.pdf", "--chunk", chunk.chunk_id, "--page", 2, "-o", svg, *place)
    assert "page 2, 910 x 1287 pixels, marks: 2" in wrote.stderr
    root = ElementTree.fromstring(svg.read_text())
    assert [child.tag.rpartition("}")[2] for child in root] == ["image", "rect", "rect"]
    tops = [float(child.get("y", "")) for child in root[1:]]
    assert 0 < tops[0] < tops[1] < 200
    refused = run("page", "d.pdf", "--chunk", chunk.chunk_id, "-o", png, *place, code=2)
    assert "FILE.svg" in refused.stderr
    other = run("page", "d.pdf", "--chunk", "e.pdf#0.0", "-o", svg, *place, code=2)
    assert "is no chunk of" in other.stderr
    missing = run("page", "d.pdf", "--page", 3, "-o", tmp_path / "x.png", *place, code=2)
    assert "has 2 pages" in missing.stderr
    assert not (tmp_path / "x.png").exists()


@pytest.mark.skipif(not has_ocr_extra(), reason="the extra ocr is not installed")
def test_a_picture_and_a_scan_show_where_their_text_was_recognised(services, tenant):
    client = services.client
    request = SettingsRequest(keep_originals=True, embedder="none", level_sizes=(32, 64))
    client.create_collection(tenant, "c", request)
    page, words = page_with_places("The gasket of pump 4 needs care.", "Filters are washed.")
    for form, mime_type in (("PNG", PNG), ("PDF", PDF)):
        file = Document(picture_file(page, form), form, mime_type=mime_type)
        client.ingest(tenant, file, collection="c")
        text = client.get_text(tenant, form, collection="c")
        start = text.index("Filters")
        span = Span(0, 0, start, len(text))
        image = client.get_page_image(tenant, form, 1, [span], collection="c")
        (box,) = image.boxes
        assert image.boxes_note == ""
        assert box.left * page.width <= words[-3][2]
        assert box.right * page.width >= words[-1][3] - 1
        assert 60 / page.height < box.top < 80 / page.height
        assert image == client.get_page_image(tenant, form, 1, [span], collection="c")
