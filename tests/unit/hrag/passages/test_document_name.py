"""The name of a document comes from its source, and from the folders that its id repeats."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.cli.archives import EXTENSIONS as ARCHIVES
from hrag.cli.ingest_files import document_id
from hrag.passages.document_name import MAX_NAME_CHARS, document_name
from hrag.values import formats
from hrag.values.ids import MAX_DOCUMENT_ID_BYTES

# A source, and the name of a document whose id does not repeat it.
FILES = [
    ("report.pdf", "report"),
    ("report.PDF", "report"),
    ("/home/anna/work/report.pdf", "report"),
    ("report", "report"),
    ("report.final.docx", "report.final"),
    ("table.csv.gz", "table"),
    ("sources.tar.gz", "sources"),
    ("drawing.dwg", "drawing.dwg"),
    ("release-1.2", "release-1.2"),
    ("Dr. Meier", "Dr. Meier"),
    (".gitignore", ".gitignore"),
    (".md", ".md"),
    ("report.", "report."),
    ("annual_report-2023 (final).pdf", "annual_report-2023 (final)"),
    ("2023-10-05_minutes.md", "2023-10-05_minutes"),
    ("20231005.txt", "20231005"),
    ("E-4711.md", "E-4711"),
    ("C++.html", "C++"),
    ("Geschäftsbericht_Müller.odt", "Geschäftsbericht_Müller"),
    ("Gescha\u0308ftsbericht.odt", "Geschäftsbericht"),
    ("年度报告2023.pdf", "年度报告2023"),
    ("отчёт.pdf", "отчёт"),
    ("C:\\Users\\anna\\report.docx", "report"),
    ("folder/", "folder"),
    ("a/./b/../report.txt", "report"),
    ("", ""),
    ("/", ""),
    ("../..", ""),
    ("  ", ""),
    ("lines.jsonl", ""),
    ("folder/lines.ndjson", ""),
]
URLS = [
    ("https://example.org/wiki/Heat_pump", "Heat_pump"),
    ("https://example.org/wiki/Heat%20pump.html?page=2#top", "Heat pump"),
    ("HTTPS://EXAMPLE.ORG/a/b.pdf", "b"),
    ("https://example.org/docs/heat-pumps/", "heat-pumps"),
    ("https://example.org/a%2Fb.pdf", "a/b"),
    ("https://example.org/?page=2", ""),
    ("https://example.org", ""),
    ("https://example.org?next=/a/b.pdf", ""),
    ("file:///srv/texts/report.pdf", "report"),
    ("s3://bucket/contracts/lease.pdf", "lease"),
    # Only in URLs do these characters have a meaning.
    ("What now? #1 100%25.md", "What now? #1 100%25"),
]
WORDS_INSIDE = [
    ("AnnualReport.pdf", "AnnualReport > Annual Report"),
    ("annualReport2023.pdf", "annualReport2023 > annual Report 2023"),
    ("PDFReader.py", "PDFReader > PDF Reader"),
    ("report2023.txt", "report2023 > report 2023"),
    ("2023report.txt", "2023report > 2023 report"),
    ("ÜbersichtÄnderungen.txt", "ÜbersichtÄnderungen > Übersicht Änderungen"),
    ("Lease_AcmeCorp-2023.pdf", "Lease_AcmeCorp-2023 > Acme Corp"),
    # Parts of one character say nothing alone.
    ("v2.txt", "v2"),
    ("report-Q3.txt", "report-Q3"),
    ("iPhone.txt", "iPhone > Phone"),
    # These words have no parts.
    ("Report.txt", "Report"),
    ("REPORT.txt", "REPORT"),
    ("REPORTs.txt", "REPORTs > REPOR Ts"),
    ("report_annual.txt", "report_annual"),
    ("年度报告2023.txt", "年度报告2023"),
    ("年度Report.txt", "年度Report"),
]


@pytest.mark.parametrize(("source", "name"), [*FILES, *URLS, *WORDS_INSIDE])
def test_the_name_of_a_file_counts_whatever_the_id_is(source, name):
    assert document_name(source, "7f3a") == name


@pytest.mark.parametrize(
    ("source", "document_id", "name"),
    [
        ("/work/acme/2023/lease.pdf", "acme:2023:lease.pdf", "acme > 2023 > lease"),
        ("/work/acme/2023/lease.pdf", "2023:lease.pdf", "2023 > lease"),
        ("/work/acme/2023/lease.pdf", "lease.pdf", "lease"),
        ("lease.pdf", "acme:lease.pdf", "lease"),
        ("/work/acme/2023/lease.pdf", "x:2023:lease.pdf", "2023 > lease"),
        ("/work/acme/2023/lease.pdf", "acme:2024:lease.pdf", "lease"),
        ("https://example.org/acme/lease.pdf", "acme:lease.pdf", "acme > lease"),
        ("C:\\work\\acme\\lease.pdf", "acme:lease.pdf", "acme > lease"),
        ("/work/acme/lease.pdf", "acme:lease.pdf:7", "lease"),
        # Archives are like folders.
        ("/work/acme.zip/a/lease.pdf", "acme.zip:a:lease.pdf", "acme > a > lease"),
        ("/work/texts.md/lease.pdf", "texts.md:lease.pdf", "texts.md > lease"),
        # A file of JSON Lines that is one document has a name, and its lines have none.
        ("/work/log/lines.jsonl", "log:lines.jsonl", "log > lines"),
        ("/work/log/lines.jsonl", "log:lines.jsonl:7", ""),
        ("/work/log/lines.jsonl", "lines", ""),
        # An id without a source.
        ("", "handbook.pdf", "handbook"),
        ("", "acme:AnnualReport.pdf", "acme > AnnualReport > Annual Report"),
        ("", "acme:annual", ""),
        ("", "b2-7f3a", ""),
        ("", "v1.2", ""),
        ("?", "handbook.pdf", "?"),
    ],
)
def test_folders_count_if_the_id_repeats_them(source, document_id, name):
    assert document_name(source, document_id) == name


@pytest.mark.parametrize(
    "path",
    [
        "lease.pdf",
        "acme/lease.pdf",
        "acme/Müller & Söhne/Vertrag (1).pdf",
        "報告/二〇二三年/年度報告.pdf",
        "_drafts/lease.pdf",
        "ä/ö.txt",
        "acme.zip/a b/lease.pdf",
        "Gescha\u0308ft/Vertra\u0308ge.txt",
        "acme/lease.pdf-01234567",
    ],
)
@pytest.mark.parametrize("above", ["", "/home/anna/work/", "../", "C:\\Users\\anna\\"])
def test_all_folders_inside_the_ingested_folder_count(path, above):
    """The document ids are those that `hrag ingest` makes from the path inside the folder."""
    inside = document_name(path, document_id(path))
    assert document_name(f"{above}{path}", document_id(path)) == inside
    assert inside.count(" > ") == path.count("/")


def test_only_the_file_counts_if_the_path_is_too_long_for_an_id():
    path = f"{'folder/' * 30}lease.pdf"
    assert len(document_id(path)) == MAX_DOCUMENT_ID_BYTES
    assert document_name(path, document_id(path)) == "lease"


def test_the_nearest_folders_of_a_long_name_are_kept():
    folders = [f"{letter * 60}" for letter in "abcde"]
    path = "/".join((*folders, "lease.pdf"))
    name = document_name(path, path.replace("/", ":"))
    assert name == " > ".join((*folders[-3:], "lease"))
    assert len(name) <= MAX_NAME_CHARS
    assert document_name("x" * 1000 + ".pdf", "d") == "x" * MAX_NAME_CHARS


def test_extensions_of_all_formats_and_archives_are_left_out():
    for extension in (*formats.EXTENSIONS, *ARCHIVES):
        source = f"report{extension}"
        assert document_name(source, source) == "report"


@given(st.text(max_size=400), st.text(max_size=128))
def test_every_source_has_a_name_of_bounded_length(source, document_id):
    # The words inside of words follow the name, each with a space before it.
    assert len(document_name(source, document_id)) <= 3 * MAX_NAME_CHARS
