"""Pages: they load nothing from elsewhere, and no path leads out of their folders."""

from pathlib import Path

import pytest

from hrag.gateway.http.static_files import static_routes
from tests.support.servers.gateways import Gateway


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/docs", "text/html; charset=utf-8"),
        ("/docs/reference.js", "text/javascript; charset=utf-8"),
        ("/docs/reference.css", "text/css; charset=utf-8"),
    ],
)
def test_pages_load_nothing_from_elsewhere(gateway: Gateway, path: str, media_type: str) -> None:
    found = gateway.send("GET", path)
    assert (found.status, found.headers["content-type"]) == (200, media_type)
    assert found.headers["content-security-policy"].startswith("default-src 'none'; script-src")
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "no-referrer"
    assert b"//" not in found.body.replace(b"// ", b"")


def test_a_page_is_not_sent_twice(gateway: Gateway) -> None:
    tag = gateway.send("GET", "/docs").headers["etag"]
    again = gateway.send("GET", "/docs", headers={"if-none-match": tag})
    assert (again.status, again.body) == (304, b"")
    assert gateway.send("HEAD", "/docs").body == b""


def test_a_folder_is_served_as_it_is(tmp_path: Path) -> None:
    for name in ("index.html", "main.js", "icon.svg", "notes.unknown"):
        (tmp_path / name).write_text("x")
    (tmp_path / "inner").mkdir()
    assert set(static_routes(tmp_path, "/")) == {"/", "/main.js", "/icon.svg"}
    assert static_routes(tmp_path / "missing", "/") == {}


@pytest.mark.parametrize("path", ["/../app.py", "/docs/../app.py", "/%2e%2e/app.py", "//docs"])
def test_no_path_leads_elsewhere(gateway: Gateway, path: str) -> None:
    assert gateway.send("GET", path).status == 404
