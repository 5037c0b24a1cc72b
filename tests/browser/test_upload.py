"""Files that a user chooses or drops are uploaded, with progress, outcomes and errors."""

import gzip
import io
import tarfile

import pytest

from hrag.cli.ingest_files import document_id
from hrag.values.formats import EXTENSIONS, mime_type_of
from tests.browser.explorer import Explorer, expect
from tests.browser.site import ALIAS, ATTACK, GUIDE, MANY
from tests.support.documents.format_files import archive, docx_file
from tests.support.documents.pdfs import pdf_of

pytestmark = pytest.mark.browser

_DROP = """([name, text]) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([text], name));
  const zone = document.querySelector(".drop-zone");
  const how = { dataTransfer: transfer, cancelable: true };
  for (const type of ["dragover", "drop"]) zone.dispatchEvent(new DragEvent(type, how));
}"""


def choose_files(explorer: Explorer, *uploads: tuple[str, bytes]) -> None:
    with explorer.page.expect_file_chooser() as waited:
        explorer.page.get_by_role("button", name="Choose files").click()
    waited.value.set_files(
        [{"name": name, "mimeType": "", "buffer": content} for name, content in uploads]
    )


def test_files_are_stored_and_found(explorer: Explorer) -> None:
    explorer.show("upload", collection="", tenant="uploader")
    upload = explorer.page.get_by_role("list", name="Uploads").get_by_role("listitem")
    with explorer.collections_read_again():
        explorer.page.evaluate(_DROP, ["dropped.md", "# Dropped\n\nZebras graze at dawn."])
    expect(upload).to_contain_text("created")
    expect(upload).to_contain_text("dropped.md")
    with explorer.collections_read_again():
        choose_files(
            explorer,
            ("a note.txt", "Giraffes 🦒 eat leaves.".encode()),
            ("four.pdf", pdf_of(["Lions roar."])),
        )
    expect(upload).to_have_count(3)
    expect(upload.filter(has_text="a note.txt")).to_contain_text("a_note.txt-")
    expect(upload.filter(has_text="four.pdf")).to_contain_text("created")
    with explorer.collections_read_again():
        choose_files(explorer, ("four.pdf", pdf_of(["Lions roar."])))
    expect(upload.first).to_contain_text("unchanged")
    explorer.page.get_by_role("tab", name="Documents").click()
    expect(explorer.panel("Documents").get_by_role("rowheader")).to_have_count(3)
    explorer.page.get_by_role("tab", name="Search").click()
    expect(explorer.search("zebras").first).to_contain_text("Zebras graze at dawn.")


def test_the_end_of_an_upload_does_not_end_a_search(explorer: Explorer) -> None:
    explorer.show("upload", collection="", tenant="quick-uploader")
    with explorer.collections_read_again():
        choose_files(explorer, ("zebras.txt", b"Zebras graze at dawn."))
    search = explorer.stop_next_call("Search")
    list_collections = explorer.stop_next_call("ListCollections")
    choose_files(explorer, ("lions.txt", b"Lions roar at night."))
    upload = explorer.page.get_by_role("list", name="Uploads").get_by_role("listitem")
    expect(upload.filter(has_text="lions.txt")).to_contain_text("created")
    explorer.page.get_by_role("tab", name="Search").click()
    passages = explorer.search("zebras")
    list_collections()
    search()
    expect(passages.first).to_contain_text("Zebras graze at dawn.")


def test_ids_and_known_formats_are_the_same_as_in_the_command_line(explorer: Explorer) -> None:
    explorer.page.goto(explorer.url)
    names = ["plain.md", "a note.txt", "报告.pdf", "_x", "a:b", "x" * 200, "dots..md", "😀.txt"]
    names += [f"file{extension}" for extension in EXTENSIONS]
    names += ["UPPER.MD", "none", "other.xyz", "a.zip/b/c.md", "a.md/b", "a.zip/x:y.md"]
    actual = explorer.page.evaluate(
        """async (names) => {
          const { documentId, hasKnownExtension } = await import("./upload_names.js");
          const rules = async (name) => [await documentId(name), hasKnownExtension(name)];
          return Promise.all(names.map(rules));
        }""",
        names,
    )
    assert actual == [[document_id(name), bool(mime_type_of(name))] for name in names]


def test_files_in_archives_become_documents(explorer: Explorer) -> None:
    explorer.show("upload", collection="", tenant="archivist")
    inner = archive({"deep.txt": "Lynxes hide."})
    members = {
        "docs/b.md": "# B\n\nBears sleep.",
        "a.txt": "Größe".encode("cp1252") + b" of a wolf",
        "photo.bin": b"\0\1",
        ".hidden.txt": "no",
        "../escape.txt": "no",
        "inner.zip": inner,
    }
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:gz") as file:
        for name in ("t.txt", "x" * 120 + ".md"):
            content = f"{name} has text".encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    choose_files(
        explorer,
        ("many.zip", archive(members)),
        ("more.tgz", tar.getvalue()),
        ("one.txt.gz", gzip.compress(b"Foxes run.")),
        ("book.zip", docx_file()),
        ("broken.zip", archive(members)[:100]),
    )
    upload = explorer.page.get_by_role("list", name="Uploads").get_by_role("listitem")
    expect(upload.filter(has_text="created")).to_have_count(7)
    archived = upload.filter(has_text="files in the archive")
    expect(
        archived.filter(has_text="1 file of unknown format is skipped: photo.bin")
    ).to_have_count(1)
    expect(upload.filter(has_text="many.zip:docs:b.md")).to_contain_text("1 section")
    expect(upload.filter(has_text="many.zip:a.txt")).to_contain_text("read as windows-1252")
    expect(upload.filter(has_text="many.zip:inner.zip:deep.txt")).to_contain_text("created")
    expect(upload.filter(has_text="one.txt.gz:one.txt")).to_contain_text("created")
    expect(upload.filter(has_text="broken.zip")).to_contain_text("damaged or cut off")
    expect(upload.filter(has_text="escape")).to_have_count(0)


def test_a_refused_file_can_be_sent_again(explorer: Explorer) -> None:
    explorer.expects_failed_calls = True
    explorer.show("upload")
    choose_files(explorer, (f"{ATTACK.replace('/', '')}.txt", b"  "))
    error = explorer.page.get_by_role("alert")
    expect(error).to_contain_text("invalid_argument")
    expect(error).to_contain_text("Field: content")
    with explorer.page.expect_request("**/IngestDocument"):
        error.get_by_role("button", name="Try again").click()
    expect(error).to_contain_text("invalid_argument")
    assert explorer.page.evaluate("window.attacked") is None


def test_a_reply_of_a_proxy_does_not_stop_other_uploads(explorer: Explorer) -> None:
    """A proxy may answer with a sign-in page, for example, instead of the gateway's JSON."""
    page = "<html>Sign in</html>"
    explorer.page.route(
        "**/IngestDocument", lambda call: call.fulfill(content_type="text/html", body=page), times=1
    )
    explorer.show("upload", collection="", tenant="visitor")
    choose_files(explorer, ("first.txt", b"Bees hum."), ("second.txt", b"Ants march."))
    upload = explorer.page.get_by_role("list", name="Uploads").get_by_role("listitem")
    expect(upload.filter(has_text="second.txt")).to_contain_text("created")
    refused = upload.filter(has_text="first.txt")
    expect(refused).to_contain_text("unreachable")
    refused.get_by_role("button", name="Try again").click()
    expect(refused).to_contain_text("created")


def test_late_collections_of_the_previous_tenant_are_dropped(explorer: Explorer) -> None:
    """The page reads the collections again after each upload, also after a refused one."""
    explorer.expects_failed_calls = True
    explorer.show("upload")
    collection = explorer.page.get_by_label("Collection", exact=True)
    expect(collection.get_by_role("option")).to_have_text([GUIDE, MANY, ALIAS])
    send_stopped_call = explorer.stop_next_call("ListCollections")
    with explorer.page.expect_request("**/ListCollections"):
        choose_files(explorer, ("empty.txt", b"  "))
    explorer.page.get_by_label("Tenant").fill("nobody")
    explorer.page.keyboard.press("Enter")
    expect(collection.get_by_role("option")).to_have_text(["default"])
    send_stopped_call()
    expect(collection.get_by_role("option")).to_have_text(["default"])


def test_progress_is_shown(explorer: Explorer) -> None:
    explorer.page.add_init_script(
        """window.shown = [];
        new MutationObserver(() => {
          const row = document.querySelector(".upload-outcome");
          if (row) window.shown.push(row.textContent);
        }).observe(document, { subtree: true, childList: true });"""
    )
    explorer.show("upload", collection="", tenant="sender")
    choose_files(explorer, ("long.txt", b"Owls hunt at night. " * 20_000))
    upload = explorer.page.get_by_role("list", name="Uploads").get_by_role("listitem")
    expect(upload).to_contain_text("created")
    shown = list(dict.fromkeys(explorer.page.evaluate("window.shown")))
    assert shown[:-1] == ["sending", "cutting, embedding, storing"]
    expect(upload.get_by_role("progressbar")).to_be_hidden()
