"""Subtitles become words with one page for each cue, whose number is the second of its start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import TooLarge, UnreadableDocument
from hrag.values.read_report import PageUnit
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.subtitles import parse_subtitles

AMPLE_BYTES = 1 << 20


def parsed(text: str) -> ParsedFile:
    return parse_subtitles(text.encode(), AMPLE_BYTES)


def time(ms: int, mark: str = ",") -> str:
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{mark}{ms % 1000:03}"


def srt(*cues: tuple[int, int, str]) -> str:
    """Returns subtitles of cues, each with its start and end in milliseconds and its text."""
    return "\n".join(
        f"{number}\n{time(start)} --> {time(end)}\n{text}\n"
        for number, (start, end, text) in enumerate(cues, start=1)
    )


def cues_of(file: ParsedFile) -> list[tuple[int, str]]:
    return [(page.number, file.text[page.char_start : page.char_end]) for page in file.pages]


def test_each_cue_is_a_page_with_the_second_of_its_start():
    file = parsed(srt((61_500, 63_000, "Bees dance."), (3_661_000, 3_662_000, "They\nfly.")))
    assert file.page_unit is PageUnit.SECOND
    assert cues_of(file) == [(61, "Bees dance."), (3661, "They\nfly.")]
    assert file.text == "Bees dance.\n\nThey\nfly."


def test_a_cue_of_the_first_second_has_the_number_1():
    assert cues_of(parsed(srt((0, 900, "a"), (900, 1_000, "b")))) == [(1, "a"), (1, "b")]


def test_cues_are_in_the_order_of_their_times():
    file = parsed(srt((9_000, 9_500, "second"), (1_000, 2_000, "first")))
    assert [number for number, _ in cues_of(file)] == [1, 9]


@pytest.mark.parametrize(
    ("pause_ms", "separator"), [(0, "\n"), (1_999, "\n"), (2_000, "\n\n"), (60_000, "\n\n")]
)
def test_a_long_pause_begins_a_paragraph(pause_ms, separator):
    file = parsed(srt((0, 1_000, "a"), (1_000 + pause_ms, 90_000, "b")))
    assert file.text == f"a{separator}b"


@pytest.mark.parametrize(
    ("times", "second"),
    [
        ("01:02:03,400 --> 01:02:04,000", 3723),
        ("02:03.400 --> 02:04.000", 123),
        ("1:2:3.4 --> 1:2:4.0", 3723),
        ("00:00:07,000 --> 00:00:08,000 X1:40 X2:600 Y1:20 Y2:50", 7),
        ("00:00:07.000 --> 00:00:08.000 align:start position:0%", 7),
        (" 00:00:07,000 --> 00:00:06,000", 7),
        ("100:00:07,000-->100:00:08,000", 360_007),
    ],
)
def test_times_are_read_in_the_forms_that_programs_write(times, second):
    assert cues_of(parsed(f"1\n{times}\nword\n")) == [(second, "word")]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("<i>Hello</i> <b>there</b>", "Hello there"),
        ('<font color="#fff">red</font>', "red"),
        ("{\\an8}up", "up"),
        ("{braces} stay", "{braces} stay"),
        ("a < b and c > d", "a < b and c > d"),
        ("<unknown> stays", "<unknown> stays"),
        ("<c.yellow.bg_blue>x</c>", "x"),
        ("so<00:00:00.320><c> in</c>", "so in"),
        ("<ruby>漢<rt>kan</rt></ruby>", "漢kan"),
        ("R&amp;D &lt;tag&gt; &#233;", "R&D <tag> é"),
        ("a & b &unknown;", "a & b &unknown;"),
        ("♪ la ♪", "♪ la ♪"),
    ],
)
def test_markup_is_left_out_and_other_text_stays(line, shown):
    assert parsed(srt((0, 1_000, line))).text == shown


def test_blank_lines_and_numbers_inside_a_cue_of_srt_belong_to_it():
    file = parsed(
        "1\n00:00:01,000 --> 00:00:02,000\none\n\n42\ntwo\n\n2\n00:00:05,000 --> 00:00:06,000\nx"
    )
    assert cues_of(file) == [(1, "one\n42\ntwo"), (5, "x")]


def test_line_ends_and_byte_order_mark_make_no_difference():
    text = srt((0, 1_000, "a\nb"), (5_000, 6_000, "c"))
    assert parsed("\ufeff" + text.replace("\n", "\r\n")) == parsed(text)


WEB = """WEBVTT - The dance
Kind: captions
Language: en-GB

NOTE This is hidden.

STYLE
::cue { color: red }

intro
00:01.000 --> 00:02.000
<v.loud Ann>Hello &amp; welcome.</v>

NOTE
Hidden too.

00:02.000 --> 00:03.000
<v Ann>Sit down.

00:03.000 --> 00:04.000
<v Bob>Thanks.
"""


def test_webvtt_names_each_speaker_once_in_a_turn_and_leaves_out_notes_and_styles():
    file = parsed(WEB)
    assert file.text == "Ann: Hello & welcome.\nSit down.\n\nBob: Thanks."
    assert file.title == "The dance"
    assert file.metadata == {"language": "en-GB"}


def test_several_speakers_in_a_cue_are_named_on_their_lines():
    text = "WEBVTT\n\n00:01.000 --> 00:02.000\n- <v Ann>Yes.</v>\n- <v Bob>No.</v>\n"
    assert parsed(text).text == "- Ann: Yes.\n- Bob: No."


def rolling(lines: list[str], gap_ms: int) -> str:
    """Returns captions in which each cue shows the line before it above its own line."""
    cues = []
    for index, line in enumerate(lines):
        start = index * 2_000
        above = f"{lines[index - 1]}\n" if index else ""
        cues.append((start, start + 2_000 - gap_ms, f"{above}{line}"))
        cues.append((start + 2_000 - gap_ms, start + 2_000, line))
    return srt(*cues)


@pytest.mark.parametrize("gap_ms", [10, 40])
def test_the_lines_of_rolling_captions_are_written_once(gap_ms):
    lines = [f"line {number}" for number in range(30)]
    assert parsed(rolling(lines, gap_ms)).text.split("\n") == lines


def test_captions_that_grow_word_by_word_are_written_once():
    words = ["the", "bees", "dance", "in", "the", "dark", "hive"]
    cues = [
        (index * 300, index * 300 + 300, " ".join(words[: index + 1]))
        for index in range(len(words))
    ]
    assert parsed(srt(*cues)).text.split() == words


def test_cues_that_overlap_show_a_line_once():
    file = parsed(srt((0, 3_000, "Stay."), (1_000, 4_000, "Stay.\nPlease.")))
    assert cues_of(file) == [(1, "Stay."), (1, "Please.")]


def test_words_that_are_spoken_twice_are_kept():
    file = parsed(
        srt(
            (0, 1_000, "No."),
            (1_000, 2_000, "No."),
            *((2_000 + 1_000 * n, 3_000 + 1_000 * n, f"word {n}") for n in range(20)),
        )
    )
    assert file.text.startswith("No.\nNo.\nword 0\n")


@pytest.mark.parametrize(
    "text", ["", "words", "WEBVTT\n\nNOTE x\n", "1\n00:00 -> 00:01\nx", srt((0, 1, " "))]
)
def test_a_text_without_cues_is_refused(text):
    with pytest.raises(UnreadableDocument, match="no subtitles"):
        parsed(text)


def test_more_text_than_allowed_is_refused():
    with pytest.raises(TooLarge):
        parse_subtitles(srt((0, 1, "x" * 100)).encode(), 99)


@pytest.mark.parametrize(
    "text",
    [
        srt((0, 1, "<v" + " " * 200_000)),
        srt((0, 1, "<" * 200_000), (0, 1, "{\\" * 100_000)),
        srt((0, 1, "&#" + "9" * 200_000)),
        srt((0, 9, "x\n" * 50_000 + "y"), (1, 9, "x\n" * 50_000 + "z")),
        "00:00:00,0 --> " * 50_000 + srt((0, 1, "x")),
    ],
    ids=["voice", "brackets", "reference", "lines", "times"],
)
def test_hostile_captions_take_little_time(text):
    parsed(text)


LINES = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=8)


@given(st.lists(st.lists(LINES, min_size=1, max_size=3), min_size=1, max_size=8))
def test_no_word_is_lost_and_none_is_doubled(cues):
    """The cues neither overlap nor follow one another directly."""
    file = parsed(
        srt(
            *(
                (index * 5_000, index * 5_000 + 1_000, "\n".join(lines))
                for index, lines in enumerate(cues)
            )
        )
    )
    assert file.text.split() == [line for lines in cues for line in lines]
    assert [number for number, _ in cues_of(file)] == [max(1, 5 * n) for n in range(len(cues))]
