"""A mail becomes its body, its attachments as sections, and metadata."""

from base64 import b64encode
from email.message import EmailMessage

import pytest

from hrag.errors import TooLarge, UnreadableDocument
from hrag.values.limits import MAX_METADATA_BYTES
from hrag.values.read_report import LeftOutKind, PageUnit
from indexer_svc.parsers.mail import parse_mail
from indexer_svc.parsers.message import MAX_ATTACHMENTS, MAX_DEPTH
from indexer_svc.parsers.parsed_file import ParsedFile
from tests.support.documents.format_files import DANCE, docx_file
from tests.support.documents.messages import mail, mail_file, msg_file
from tests.support.documents.pdfs import pdf_of

AMPLE_BYTES = 1 << 20
CSV_FILE = ("prices.csv", "text/csv", b"name,price\nPump,12\n")
PDF_FILE = ("report.pdf", "application/pdf", pdf_of(["First page", "Second page"]))


def parsed(content: bytes | EmailMessage) -> ParsedFile:
    data = content if isinstance(content, bytes) else content.as_bytes()
    return parse_mail(data, AMPLE_BYTES)


def sections(file: ParsedFile) -> list[tuple[str, int]]:
    for head in file.headings:
        assert file.text[head.char_start :].lstrip("# ").startswith(head.title)
    return [(head.title, head.depth) for head in file.headings]


def unread(file: ParsedFile) -> tuple[int, str]:
    """Returns how many attachments were left out, and what the report says of them."""
    for part in file.report.left_out:
        if part.kind is LeftOutKind.ATTACHMENT:
            return part.part_count, part.example
    return 0, ""


def test_the_fields_of_the_header_are_title_and_metadata():
    file = parsed(
        mail_file(
            Subject="Grüße an die Bienen",
            From="Ann Müller <ann@bee.example>",
            To="Bob <bob@bee.example>, c@bee.example",
            Cc='"Doe, Jo" <jo@bee.example>',
            Date="Thu, 26 Nov 2026 04:00:00 +0100",
            Message_ID="<1@bee.example>",
        )
    )
    assert (file.title, file.text) == ("Grüße an die Bienen", "Bees dance.")
    assert file.metadata == {
        "from": "Ann Müller <ann@bee.example>",
        "to": ["Bob <bob@bee.example>", "c@bee.example"],
        "cc": ["Doe, Jo <jo@bee.example>"],
        "date": "2026-11-26T03:00:00Z",
        "message_id": "1@bee.example",
    }


@pytest.mark.parametrize(
    ("field", "name", "value"),
    [
        (b"Date: Mon, 1 Jan 2024 00:00:00 -0000", "date", "2024-01-01T00:00:00Z"),
        (b"Date: yesterday", "date", None),
        (b"From: Ann", "from", "Ann"),
        (b"From: =?utf-8?b?w4Q=?= <a@x.example>", "from", "Ä <a@x.example>"),
        ("From: Ä <a@x.example>".encode(), "from", "Ä <a@x.example>"),
        ("From: Ä <a@x.example>".encode("cp1252"), "from", "Ä <a@x.example>"),
        (b"Sender: a@x.example", "from", "a@x.example"),
        (b"To: undisclosed-recipients:;", "to", ["undisclosed-recipients:;"]),
        (b"To: " + b"(" * 5_000, "to", ["(" * 300]),
    ],
)
def test_malformed_fields_are_read_as_far_as_they_can_be(field, name, value):
    assert parsed(b"Subject: x\n" + field + b"\n\nword\n").metadata.get(name) == value


def test_metadata_of_many_recipients_stays_below_its_limit():
    many = ", ".join(f"{'é' * 280} <a{n}@x.example>" for n in range(1_000))
    metadata = parsed(f"To: {many}\nCc: {many}\n\nword\n".encode()).metadata
    assert sum(len(str(value).encode()) for value in metadata.values()) < MAX_METADATA_BYTES


TABLE = "<table><tr><th>A<th>B<tr><td>1<td>2</table>"


@pytest.mark.parametrize(
    ("plain", "html", "text"),
    [
        ("Hello Bob.", "", "Hello Bob."),
        ("", "<p>Hello <b>Bob</b>.", "Hello Bob."),
        ("Hello Bob.", "<p>Hello <b>Bob</b>.", "Hello Bob."),
        ("See the HTML.", "<p>" + "Hello Bob. " * 9, ("Hello Bob. " * 9).strip()),
        ("A B 1 2", TABLE, "| A | B |\n| --- | --- |\n| 1 | 2 |"),
        ("x y", "<ul><li>x<li>y</ul>", "- x\n- y"),
        (" ", "<p>Hello", "Hello"),
        ("one\n\ntwo", "<p>one<p>two", "one\n\ntwo"),
    ],
)
def test_only_one_of_text_and_html_is_read(plain, html, text):
    assert parsed(mail_file(plain, html)).text == text


def test_a_mail_without_a_body_has_its_subject_as_text():
    assert parsed(mail_file("", Subject="Call me")).text == "Call me"


def test_a_set_of_alternatives_without_parts_is_an_attachment():
    head = b"Subject: x\nContent-Type: multipart/alternative\nContent-Disposition: attachment"
    assert parsed(head + b"\n\nBees dance.\n").text == "x\n\n# Attachment 1\n\nBees dance."


def test_further_alternatives_are_left_out_and_attachments_among_them_are_kept():
    """An invitation is an alternative; a file between two parts of the HTML is an attachment."""
    content = b"""Subject: x
Content-Type: multipart/alternative; boundary=a

--a
Content-Type: text/plain

plain
--a
Content-Type: multipart/mixed; boundary=m

--m
Content-Type: text/html

<ul><li>one</ul>
--m
Content-Type: text/csv; name=a.csv
Content-Disposition: attachment

a,b
1,2
--m
Content-Type: text/html

<p>two
--m--
--a
Content-Type: text/calendar; method=REQUEST; name=invite.ics

BEGIN:VCALENDAR
--a--
"""
    file = parsed(content)
    assert file.text == "- one\n\ntwo\n\n# a.csv\n\n| a | b |\n| --- | --- |\n| 1 | 2 |"


@pytest.mark.parametrize(
    ("encoding", "transfer"),
    [
        ("utf-8", "8bit"), ("utf-8", "base64"), ("utf-8", "quoted-printable"),
        ("iso-8859-1", "quoted-printable"), ("windows-1252", "8bit"), ("gb2312", "base64"),
    ],
)  # fmt: skip
def test_bodies_are_decoded_by_their_encoding(encoding, transfer):
    text = "汉字" if encoding == "gb2312" else "Café"
    message = EmailMessage()
    message.set_content(text, charset=encoding, cte=transfer)
    assert parsed(message).text == text


@pytest.mark.parametrize("charset", ["us-ascii", "unknown-8bit", "x" * 5_000, "base64", "utf-7"])
def test_a_wrong_encoding_does_not_lose_the_text(charset):
    content = f"Subject: x\nContent-Type: text/plain; charset={charset}\n\nCafé au lait\n"
    assert parsed(content.encode()).text == "Café au lait"


@pytest.mark.parametrize(
    ("charset", "encoding", "text"),
    [
        ("iso-8859-1", "windows-1252", "“It’s fine” – 12 €"),
        ("iso-8859-1", "iso-8859-1", "Café \x81"),
        ("iso-8859-1", "utf-8", "Größe 12 €"),
        ("windows-1251", "utf-8", "Größe"),
        ("windows-1251", "windows-1251", "Насос"),
        ("gb2312", "gb18030", "镕基 检查"),
        ("iso-2022-jp", "iso-2022-jp", "ポンプ"),
        ("utf-8", "utf-8-sig", "Größe"),
        ("utf-8", "windows-1252", "Die Größe der Tür"),
    ],
)
def test_a_body_is_read_although_its_encoding_is_named_inexactly(charset, encoding, text):
    head = f"Subject: x\nContent-Type: text/plain; charset={charset}\n\n"
    assert parsed(head.encode() + text.encode(encoding)).text == text


def test_an_attached_mail_in_base64_is_decoded():
    inner = b64encode(b"From: a@bee.example\nSubject: Inner\n\nThe dance.\n").decode()
    part = "Content-Type: message/rfc822\nContent-Transfer-Encoding: {}\n\n{}\n"
    head = "Subject: x\nContent-Type: multipart/mixed; boundary=b\n\n--b\n"
    file = parsed((head + part.format("base64", inner) + "--b--\n").encode())
    assert file.text == "x\n\n# Inner\n\nFrom: a@bee.example\n\nThe dance."
    broken = parsed((head + part.format("base64", "no base64!") + "--b--\n").encode())
    assert "no base64!" in broken.text


def test_flowed_lines_are_joined():
    content = (
        b"Subject: x\nContent-Type: text/plain; format=flowed\n\nBees \ndance.\n> They \n> fly.\n"
        b"new\n-- \nAnn\n"
    )
    assert parsed(content).text == "Bees dance.\n> They fly.\nnew\n--\nAnn"


def test_flowed_lines_are_joined_without_their_spaces_if_a_mail_says_so():
    field = b"Content-Type: text/plain; format=flowed; delsp=yes"
    assert parsed(b"Subject: x\n%s\n\nBe \nes  \ndance.\nnew\n" % field).text == (
        "Bees dance.\nnew"
    )


def test_a_malformed_field_of_a_part_does_not_hide_the_mail():
    for value in (b"(" * 3_000, b"text/plain; a=" + b"(" * 3_000, b"text/plain" + b"; a=b" * 9_000):
        assert "Bees." in parsed(b"Subject: x\nContent-Type: %s\n\nBees.\n" % value).text


def test_a_long_name_of_a_file_is_read_whole():
    name = "蜂" * 250 + ".csv"
    (section,) = sections(parsed(mail_file(attachments=[(name, *CSV_FILE[1:])])))
    assert section[0] == name[:150]


def test_attachments_are_sections_read_by_the_same_parsers():
    file = parsed(
        mail_file(
            attachments=[
                ("notes.md", "text/markdown", b"# Notes\n\nx\n\n## Sub\n\ny\n"),
                CSV_FILE,
                ("bee.docx", "application/octet-stream", docx_file()),
                ("code.py", "text/x-python", b"def fly(): pass\n"),
                ("letter.txt", "text/plain", "Grüße".encode("cp1252")),
            ]
        )
    )
    assert sections(file)[:6] == [
        ("notes.md", 1), ("Notes", 2), ("Sub", 3), ("prices.csv", 1), ("bee.docx", 1), ("Dance", 2),
    ]  # fmt: skip
    assert file.text.startswith("Bees dance.\n\n# notes.md\n\n# Notes")
    assert "| Pump | 12 |" in file.text
    assert DANCE in file.text
    assert "Grüße" in file.text
    assert file.report.table_count == 2
    assert unread(file) == (0, "")


def test_an_attached_page_is_decoded_like_a_page_that_is_sent_alone():
    page = "<p>Grüße aus Köln: Die Bienen fliegen über die Dörfer.".encode("cp1252")
    file = parsed(mail_file(attachments=[("page.html", "text/html", page)]))
    assert "Grüße aus Köln" in file.text
    assert unread(file) == (0, "")


def test_the_pages_of_the_only_attachment_with_pages_are_the_pages():
    file = parsed(mail_file(attachments=[PDF_FILE, CSV_FILE]))
    assert [head for head, _ in sections(file)] == ["prices.csv", "report.pdf"]
    assert file.page_unit is PageUnit.PAGE
    assert [(page.number, file.text[page.char_start : page.char_end]) for page in file.pages] == [
        (1, "First page"), (2, "Second page"),
    ]  # fmt: skip


def test_a_mail_with_several_attachments_with_pages_has_no_pages():
    file = parsed(mail_file(attachments=[PDF_FILE, ("b.pdf", PDF_FILE[1], PDF_FILE[2])]))
    assert [head for head, _ in sections(file)] == ["report.pdf", "b.pdf"]
    assert file.pages == ()


def test_attachments_that_cannot_be_read_are_named_in_the_report():
    file = parsed(
        mail_file(
            attachments=[
                ("program.exe", "application/octet-stream", b"\x7fELF\x00\x01\x02"),
                ("broken.pdf", "application/pdf", b"%PDF-1.7 broken"),
                ("photo.png", "image/png", b"\x89PNG\r\n\x1a\n..."),
                ("empty.txt", "text/plain", b" \n"),
                CSV_FILE,
            ]
        )
    )
    assert sections(file) == [("prices.csv", 1)]
    assert unread(file) == (4, "program.exe; broken.pdf; photo.png; empty.txt")


def test_the_report_says_why_a_single_attachment_was_not_read():
    file = parsed(mail_file(attachments=[("a.zip", "application/zip", b"PK\x03\x04" + bytes(50))]))
    count, example = unread(file)
    assert count == 1
    assert example.startswith("a.zip: content is a ZIP archive")


def test_pictures_in_the_body_and_signatures_are_no_attachments():
    message = mail("Hello", '<p>Hello <img src="cid:1">')
    html = message.get_payload()[1]
    html.add_related(b"\x89PNG\r\n\x1a\n", "image", "png", cid="<1>")
    message.add_attachment(b"x", "application", "pkcs7-signature", filename="smime.p7s")
    message.add_attachment(b"GIF8", "image", "gif", disposition="inline", filename="logo.gif")
    file = parsed(message)
    assert (file.text, unread(file)) == ("Hello", (0, ""))


def test_messages_in_a_message_are_sections_with_their_header():
    inner = mail("Inner body.", attachments=[CSV_FILE], Subject="Inner", To="Bob <b@x.example>")
    file = parsed(mail_file(messages=[inner]))
    assert sections(file) == [("Inner", 1), ("prices.csv", 2)]
    assert (
        "# Inner\n\nFrom: Ann <ann@bee.example>\nTo: Bob <b@x.example>\n\nInner body." in file.text
    )


@pytest.mark.parametrize("name", ["mail.eml", "message.msg"])
def test_files_of_messages_are_read_like_messages(name):
    content = (
        mail_file("Inner.")
        if name.endswith("eml")
        else msg_file({0x37: "The dance", 0x1000: "Inner."})
    )
    file = parsed(mail_file(attachments=[(name, "application/octet-stream", content)]))
    assert sections(file) == [("The dance", 1)]
    assert file.text.endswith("Inner.")


@pytest.mark.parametrize("as_file", [False, True])
def test_messages_that_are_nested_too_deep_are_left_out_and_named(as_file):
    message = mail("Body 9.", Subject="Mail 9")
    for number in range(8, -1, -1):
        if as_file:
            files = [("inner.eml", "application/octet-stream", message.as_bytes())]
            message = mail(f"Body {number}.", attachments=files, Subject=f"Mail {number}")
        else:
            message = mail(f"Body {number}.", messages=[message], Subject=f"Mail {number}")
    file = parsed(message)
    assert [depth for _, depth in sections(file)] == list(range(1, MAX_DEPTH))
    assert f"Body {MAX_DEPTH - 1}." in file.text
    assert f"Body {MAX_DEPTH}." not in file.text
    assert unread(file)[0] == 1


def test_attachments_beyond_the_limit_are_left_out_and_counted():
    files = [(f"{n}.txt", "text/plain", b"word") for n in range(MAX_ATTACHMENTS + 3)]
    file = parsed(mail_file(attachments=files))
    assert len(sections(file)) == MAX_ATTACHMENTS
    assert unread(file) == (3, "100.txt; 101.txt; 102.txt")


def test_an_attachment_that_would_make_the_text_too_large_is_left_out():
    files = [("big.txt", "text/plain", b"word " * 1_000), ("small.txt", "text/plain", b"word")]
    file = parse_mail(mail_file(attachments=files), 1_000)
    assert sections(file) == [("small.txt", 1)]
    assert unread(file)[1].startswith("big.txt: ")


def test_a_body_that_is_too_large_is_refused():
    with pytest.raises(TooLarge):
        parse_mail(mail_file("word " * 1_000), 1_000)


@pytest.mark.parametrize("name", ["../../etc/passwd.txt", r"C:\files\passwd.txt", "passwd.txt"])
def test_names_of_attachments_have_no_folders(name):
    file = parsed(mail_file(attachments=[(name, "text/plain", b"word")]))
    assert sections(file) == [("passwd.txt", 1)]


@pytest.mark.parametrize(
    "content",
    [
        b"From ann@x.example Thu Nov 26 04:00:00 2026\nSubject: The dance\n\nBees dance.\n",
        b"\xef\xbb\xbf\r\n\r\nSubject: The dance\r\n\r\nBees dance.\r\n",
        b"Subject:\n The\n  dance\n\nBees dance.",
    ],
    ids=["mbox", "blanks", "folded"],
)
def test_the_beginning_of_a_mail_may_vary(content):
    file = parsed(content)
    assert (file.title, file.text) == ("The dance", "Bees dance.")


@pytest.mark.parametrize("content", [b"", b"word", b"<html>", b"\x00\x01: x", b"\nno field\n"])
def test_other_files_are_refused(content):
    with pytest.raises(UnreadableDocument, match="not a mail"):
        parsed(content)


def test_an_encrypted_mail_is_refused():
    content = b'Subject: x\nContent-Type: application/pkcs7-mime; name="x.p7m"\n\nAAAA\n'
    with pytest.raises(UnreadableDocument, match="encrypted"):
        parsed(content)


def multiparts(depth: int) -> bytes:
    begin = "".join(
        f"Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n" for n in range(depth)
    )
    return f"Subject: x\n{begin}Content-Type: text/plain\n\nword\n".encode()


@pytest.mark.parametrize(
    "content",
    [
        multiparts(20),
        multiparts(2_000),
        b"Content-Type: message/rfc822\n\n" * 2_000 + b"x",
        b"Subject: x\nContent-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * 3_000,
        b"Subject: x\nContent-Transfer-Encoding: base64\n\n" + b"=" * 100_000,
        b"Subject: x\nContent-Transfer-Encoding: x-uuencode\n\nbegin 644 x\n" + b"M" * 100_000,
        b"Subject: " + b"=?utf-8?q?x?= " * 10_000 + b"\n\nword",
        b"To: " + b"a@x," * 50_000 + b"\n\nword",
        b"X: y\n" * 20_000 + b"\nword",
    ],
    ids=[
        "parts",
        "deep parts",
        "deep mails",
        "many parts",
        "base64",
        "uuencode",
        "words",
        "to",
        "fields",
    ],
)
def test_hostile_mails_are_read_or_refused_in_little_time(content):
    try:
        parsed(content)
    except UnreadableDocument:
        return
