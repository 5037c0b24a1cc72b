"""Pages load nothing from other hosts, and only files in the folders of the pages are served."""

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
def test_pages_load_nothing_from_other_hosts(gateway: Gateway, path: str, media_type: str) -> None:
    reply = gateway.send("GET", path)
    assert (reply.status, reply.headers["content-type"]) == (200, media_type)
    policy = dict(
        rule.split(" ", 1) for rule in reply.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["img-src"] == "'self'"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert b"//" not in reply.body.replace(b"// ", b"")


def test_an_unchanged_page_is_not_sent_again(gateway: Gateway) -> None:
    tag = gateway.send("GET", "/docs").headers["etag"]
    second_reply = gateway.send("GET", "/docs", headers={"if-none-match": tag})
    assert (second_reply.status, second_reply.body) == (304, b"")
    assert gateway.send("HEAD", "/docs").body == b""


def test_only_files_of_known_types_in_a_folder_are_served(tmp_path: Path) -> None:
    for name in ("index.html", "main.js", "icon.svg", "notes.unknown"):
        (tmp_path / name).write_text("x")
    (tmp_path / "inner").mkdir()
    assert set(static_routes(tmp_path, "/")) == {"/", "/main.js", "/icon.svg"}
    assert static_routes(tmp_path / "missing", "/") == {}


@pytest.mark.parametrize("path", ["/../app.py", "/docs/../app.py", "/%2e%2e/app.py", "//docs"])
def test_no_path_leads_out_of_the_folder(gateway: Gateway, path: str) -> None:
    assert gateway.send("GET", path).status == 404
