"""The encoding of a text is proved by its bytes, or guessed as browsers guess it, or refused."""

import gzip
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hrag.errors import InvalidArgument, UnreadableDocument
from hrag.values.formats import HTML, LATEX, PYTHON, XML
from indexer_svc.text_encoding import DECLARATIONS, PART_BYTES, check_encoding, decode, is_text

CHINESE = "中文的文档，关于猫和狗。它们睡觉和吃饭。" * 3
GERMAN = "Größe der Tür und Straße. " * 200
# Sentences of the languages whose texts Windows-1252 was made for.
WESTERN = {
    "Danish": "Årets største fællesmøde blev afholdt på Østerbro; prisen er 100 €.",
    "Dutch": "De coöperatie vergaderde over de financiële crisis en het café.",
    "English": "The café’s “naïve” résumé – price £12.",
    "Finnish": "Työnantaja järjestää kesäjuhlat, ja pääsymaksu on kymmenen euroa.",
    "French": "Désignation : pièce détachée, réf. à préciser, prix été comme hiver.",
    "German": "Die Größe der Tür muß überprüft werden, bevor man schließt.",
    "Icelandic": "Það er mikið af fólki í Reykjavík þessa dagana, og veðrið er gott.",
    "Italian": "La città è più bella di sera, perché c’è meno traffico.",
    "Norwegian": "Møtet ble holdt på rådhuset, og alle fikk gå hjem før klokken åtte.",
    "Portuguese": "A instalação não está concluída; é necessário verificar as ligações.",
    "Spanish": "¿Cuántos años tiene el niño? El próximo mañana cumplirá diez.",
    "Swedish": "Årsmötet hölls på fredagen, och många åkte hem före åtta.",
}


@pytest.mark.parametrize("language", WESTERN)
@pytest.mark.parametrize("times", [1, 3, 40])
def test_western_texts_are_windows_1252(language, times):
    text = (WESTERN[language] + "\r\n") * times
    decoded = decode(text.encode("cp1252"))
    assert (decoded.text, decoded.encoding, decoded.is_guessed) == (text, "windows-1252", True)


@pytest.mark.parametrize("language", WESTERN)
def test_western_tables_are_windows_1252(language):
    words = WESTERN[language].split()
    table = "".join(f"{number};{';'.join(words)};12,50\r\n" for number in range(20))
    assert decode(table.encode("cp1252")).text == table


@pytest.mark.parametrize(
    "text",
    [
        *("20 °C ± 1", "Tolerance ±0.5 mm", "Volume 12 m³", "x² + y² = z²", "5 µm filter", "10 µA"),
        *("Length (µm)\n5", "Price £5", "¥500", "5 £ a day", "¼ inch hose, ¾ inch pipe", "¶ mark"),
        *("« guillemets »", "¡Hola!", "¿Qué?", "Température à 20 °C ± 1 °C", "naïve", "1ª edición"),
    ],
)
def test_signs_where_they_belong_are_windows_1252(text):
    decoded = decode(text.encode("cp1252"))
    assert (decoded.text, decoded.encoding, decoded.is_guessed) == (text, "windows-1252", True)


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        ("Są tu ślady życia, był tam mąż", "iso8859_2"),
        ("Łódź, źle, ćma", "cp1250"),
        ("Ľudia a ťava", "iso8859_2"),
        ("už ť ž š č", "cp1250"),
        ("Îmi place oraşul, ţara", "cp1250"),
        ("Це і те: їжак, № 5 і 6.", "cp1251"),
        ("氨水 5%，阀门 12", "gb18030"),
        ("5円", "shift_jis"),
    ],
)
def test_letters_are_not_taken_as_signs(text, codec):
    assert decode(text.encode(codec)).text == text


@pytest.mark.parametrize(
    ("text", "codec", "name"),
    [
        ("Příliš žluťoučký kůň úpěl ďábelské ódy. " * 3, "cp1250", "windows-1250"),
        ("Привет, мир. Это текст о кошках. " * 3, "cp1251", "windows-1251"),
        ("Привет, мир. Это текст о кошках. " * 3, "koi8_r", "koi8-u"),
        ("Привет, мир. Это текст о кошках. " * 3, "cp866", "cp866"),
        ("Η γάτα κοιμάται και ο σκύλος τρώει. " * 3, "cp1253", "windows-1253"),
        ("Kedi uyuyor, köpek yemek yiyor; şişe ağır. " * 3, "cp1254", "windows-1254"),
        ("החתול ישן והכלב אוכל את האוכל שלו. " * 3, "cp1255", "windows-1255"),
        ("القطة نائمة والكلب يأكل طعامه في البيت. " * 3, "cp1256", "windows-1256"),
        ("แมวกำลังนอนหลับและสุนัขกำลังกินอาหาร " * 3, "cp874", "windows-874"),
        (CHINESE, "gb18030", "gb18030"),
        (CHINESE, "gbk", "gb18030"),
        ("貓在睡覺，狗在吃飯。這是一份文件。" * 3, "big5", "big5"),
        ("猫は寝ます。犬は吠えます。カタカナ" * 3, "shift_jis", "shift_jis"),
        ("猫は寝ます。犬は吠えます。カタカナ" * 3, "euc_jp", "euc-jp"),
        ("고양이는 자고 개는 밥을 먹는다. " * 3, "euc_kr", "euc-kr"),
    ],
)
def test_encodings_of_other_scripts_are_guessed(text, codec, name):
    decoded = decode(text.encode(codec))
    assert (decoded.text, decoded.encoding, decoded.is_guessed) == (text, name, True)


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_utf_8_and_byte_order_marks_prove_the_encoding(codec, text):
    # Without a mark, these characters belong to other encodings.
    assume(codec != "utf-8" or ("\0" not in text and "\x1b$" not in text))
    # The mark of UTF-16 and a NUL character are the mark of UTF-32.
    assume(codec != "utf-16" or not text.startswith("\0"))
    marked = f"\ufeff{text}" if codec == "utf-8-sig" else text
    decoded = decode(marked.encode(codec.removesuffix("-sig")))
    # A text that begins with a byte order mark loses it.
    assert decoded.text == text.removeprefix("\ufeff") or decoded.text == text
    assert not decoded.is_guessed


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize(
    "text", ["Hello, world.\n", "Größe 12\r\n", "中文的文档 2026\n" * 9, "a", "Мир\n"]
)
def test_wide_encodings_without_a_mark_are_recognised(codec, text):
    decoded = decode(text.encode(codec))
    assert (decoded.text, decoded.encoding, decoded.is_guessed) == (text, codec, False)


@pytest.mark.parametrize(
    "name",
    [
        *("Big5", "EUC-JP", "EUC-KR", "GBK", "IBM866", "ISO-2022-JP", "ISO-8859-13", "ISO-8859-2"),
        *("ISO-8859-4", "ISO-8859-5", "ISO-8859-6", "ISO-8859-7", "ISO-8859-8", "ISO-8859-8-I"),
        *("KOI8-U", "Shift_JIS", "windows-1250", "windows-1251", "windows-1252", "windows-1253"),
        *("windows-1254", "windows-1255", "windows-1256", "windows-1257", "windows-1258"),
        *(
            "windows-874",
            "UTF-8",
            "gb18030",
            "macintosh",
            "x-mac-cyrillic",
            "ISO-8859-16",
            "KOI8-R",
        ),
    ],
)
def test_clients_may_name_the_encodings_of_the_web(name):
    """The detector returns the first 26 of these names."""
    check_encoding(name)
    assert decode(b"plain", name).text == "plain"


def test_iso_2022_jp_is_recognised_by_its_escape_sequences():
    text = "猫は寝ます。"
    assert decode(text.encode("iso2022_jp")).text == text


@pytest.mark.parametrize(
    ("mime_type", "text", "codec", "name"),
    [
        (HTML, '<meta charset="windows-1250"><p>č', "cp1250", "windows-1250"),
        (HTML, '<meta content="text/html; charset=iso-8859-1"><p>“é”', "cp1252", "windows-1252"),
        (XML, '<?xml version="1.0" encoding="koi8-r"?><a>Мир</a>', "koi8_r", "koi8-r"),
        (PYTHON, "#!/bin/x\n# -*- coding: cp1251 -*-\n# Мир", "cp1251", "windows-1251"),
        (LATEX, "\\usepackage[latin2]{inputenc}\nč", "iso8859_2", "iso-8859-2"),
    ],
)
def test_a_declared_encoding_is_used_before_a_guess(mime_type, text, codec, name):
    decoded = decode(text.encode(codec), declaration=DECLARATIONS[mime_type])
    assert (decoded.text, decoded.encoding, decoded.is_guessed) == (text, name, False)
    # UTF-8 is proved by the bytes, whatever the file declares.
    assert decode(text.encode(), declaration=DECLARATIONS[mime_type]).encoding == "utf-8"


@pytest.mark.parametrize("label", ["utf-8", "unknown-8", "base64", "x" * 60])
def test_a_declaration_that_cannot_be_right_is_ignored(label):
    page = f'<meta charset="{label}"><p>Die Größe der Tür'.encode("cp1252")
    assert decode(page, declaration=DECLARATIONS[HTML]).is_guessed


@pytest.mark.parametrize(
    ("body", "byte"),
    [
        (GERMAN.encode() + "—".encode()[:2], "0xE2 at offset 6,000"),
        (GERMAN.encode() + b"\xff" + GERMAN.encode(), "0xFF at offset 6,000"),
        (b"Error log of the pump. " * 300 + "—".encode()[:2], "0xE2 at offset 6,900"),
        (CHINESE.encode()[:-1], "0xE3 at offset 177"),
        (CHINESE.encode()[1:], "0xB8 at offset 0"),
        (b"\xef\xbf\xbd damaged before " * 2 + b"and \xe9 now \xe9 again", "0xE9 at offset 42"),
    ],
)
def test_damaged_utf_8_is_refused_with_the_offset(body, byte):
    with pytest.raises(
        UnreadableDocument, match=f"not utf-8: byte {byte}; encoding must"
    ) as caught:
        decode(body)
    assert caught.value.field == "encoding"
    assert is_text(body)


def test_a_letter_at_the_end_of_a_text_is_not_damage():
    assert decode(b"A short text about a caf\xe9").text == "A short text about a café"


@pytest.mark.parametrize(
    "body",
    [
        random.Random(0).randbytes(4000),
        random.Random(0).randbytes(4000).replace(b"\0", b""),
        gzip.compress(CHINESE.encode() * 20),
        b"\x7fELF\x02\x01\x01\0\0\0" + bytes(range(256)) * 8,
        b"abc\0def\0" * 100,
        bytes(1000),
        b"\0",
        b"text\0text",
    ],
)
def test_binary_noise_is_refused(body):
    with pytest.raises(
        UnreadableDocument, match="neither text nor a file of a known format"
    ) as caught:
        decode(body)
    assert caught.value.field == "mime_type"
    assert not is_text(body)


@pytest.mark.parametrize(
    ("body", "given_name", "text", "name"),
    [
        ("日本".encode("euc-jp"), "EUC-JP", "日本", "euc-jp"),
        (b"abc", "UTF8", "abc", "utf-8"),
        (b"\xef\xbb\xbfabc", "utf-8", "abc", "utf-8"),
        ("č".encode("cp1250"), "windows-1250", "č", "windows-1250"),
        ("Ω".encode("mac_greek"), "mac-greek", "Ω", "mac-greek"),
        ("Tür".encode("utf-16"), "utf-16", "Tür", "utf-16"),
        ("Tür".encode("utf-16-le"), "utf-16-le", "Tür", "utf-16-le"),
        ("é".encode("cp850"), " cp850 ", "é", "cp850"),
    ],
)
def test_an_encoding_that_the_client_names_is_used(body, given_name, text, name):
    decoded = decode(body, given_name)
    assert (decoded.text, decoded.encoding, decoded.is_guessed) == (text, name, False)


def test_bytes_that_the_given_encoding_does_not_allow_are_an_error():
    with pytest.raises(UnreadableDocument, match="not utf-8: byte 0xE9 at offset 3"):
        decode(b"caf\xe9", "utf-8")
    with pytest.raises(UnreadableDocument, match="not ascii: byte 0xE9"):
        decode(b"caf\xe9", "ascii")


@pytest.mark.parametrize("name", ["base64", "rot13", "hex", "idna", "é", "x" * 99, "no-such", "os"])
def test_names_of_no_text_encoding_are_refused(name):
    with pytest.raises(InvalidArgument, match="encoding is ") as caught:
        decode(b"abc", name)
    assert caught.value.field == "encoding"


def test_one_odd_character_late_in_a_long_text_is_guessed_by_its_line():
    text = "plain words\n" * 200_000 + "Die Größe der Tür und der Straße.\n"
    assert decode(text.encode("cp1252")).text == text


@pytest.mark.parametrize(
    "codec", ["gb18030", "shift_jis", "euc_jp", "cp1253", "utf-8", "utf-16-le"]
)
@pytest.mark.parametrize("shift", range(4))
def test_long_texts_are_decoded_in_parts(codec, shift):
    sign = "γ" if codec == "cp1253" else "日"
    text = " " * shift + f"{sign}a" * (2 * PART_BYTES // len(f"{sign}a".encode(codec)))
    content = text.encode(codec)
    assert decode(content, codec).text == text
    for position in (PART_BYTES - 1, PART_BYTES, len(content) - 1):
        damaged = content[:position] + b"\xff" * 3 + content[position:]
        with pytest.raises(UnicodeDecodeError) as expected:
            damaged.decode(codec)
        offset = expected.value.start
        problem = f"byte 0x{damaged[offset]:02X} at offset {offset:,};"
        with pytest.raises(UnreadableDocument, match=problem):
            decode(damaged, codec)


@given(st.binary(max_size=300))
def test_any_bytes_are_decoded_or_refused(content):
    try:
        decode(content)
    except UnreadableDocument:
        return
