"""The summariser writes the right summaries, and spends no more tokens than allowed."""

from dataclasses import replace

import pytest

from hrag.models.chat import ChatEnd
from hrag.text import tokens
from hrag.types import SummaryUnit
from hrag.values.answers import FinishReason
from hrag.values.tree import PageSpan, ParsedText, Section
from indexer_svc.extractive import extract
from indexer_svc.summariser import MAX_CHARS, MAX_PROMPT_CHARS, SummaryLimits
from tests.support.documents.fakes import collection_settings, sentences
from tests.support.engines.summarisers import (
    LONG,
    QUICK,
    SETTINGS,
    SHORT,
    TREE,
    WAIT_S,
    FakeChat,
    SlowChat,
    document,
    prompt_texts,
    put,
    ranges_of,
    run_to_end,
    running,
    search_sections,
    texts_of,
    unsummarised,
)
from tests.support.until import until

# The following tests cover the summaries of documents and sections.


def test_the_summary_of_a_document_is_written_from_the_summaries_of_its_sections(
    store, writer, embedder
):
    stored = document("d", LONG)
    put(writer, stored)
    chat = FakeChat()
    run_to_end(writer, embedder, chat)
    leaves = stored.tree.level(0)
    (ranges,) = ranges_of(store)
    assert len(ranges) == stored.tree.counts[-1] >= 4
    texts = [
        LONG[leaves[section[0]]["char_start"] : leaves[section[-1]]["char_end"]]
        for section in ranges
    ]
    summaries = [f"Summary {number + 1}." for number in range(len(ranges))]
    assert prompt_texts(chat.prompts) == [*(text.strip() for text in texts), "\n\n".join(summaries)]
    assert texts_of(writer) == [f"Summary {len(ranges) + 1}.", *summaries]
    assert all("from Title of d." in prompt for prompt in chat.prompts)


def test_summaries_can_be_searched_and_are_counted(engine, writer, embedder):
    put(writer, document("d", LONG))
    run_to_end(writer, embedder, FakeChat())
    sections = search_sections(engine, "", 100)
    calls = 1 + len(sections)
    assert {section.summary for section in sections} == {f"Summary {n}." for n in range(1, calls)}
    status = writer.status(writer.open("t", "c"))
    assert (status.summary_count, status.summary_tokens) == (calls, 7 * calls)


def test_headings_are_embedded_with_the_summary_but_not_stored_in_it(engine, writer, embedder):
    text = "Book\n\n" + sentences(20) + "Keys\n\n" + sentences(20, 1)
    outline = (Section("Book", 1, 0), Section("Keys", 2, text.index("Keys")))
    settings = collection_settings(TREE, summaries=SummaryUnit.SECTION)
    writer.create_collection("t", "sections", settings)
    put(writer, document("d", ParsedText(text, outline)), "sections")
    chat = FakeChat()
    with running(writer, embedder, chat):
        until(lambda: not unsummarised(writer, "sections"))
    assert texts_of(writer, name="sections") == ["Summary 3.", "Summary 1.", "Summary 2."]
    assert embedder.embedded_texts[-3:] == [
        "Title of d\nSummary 3.",
        "Title of d - Book\nSummary 1.",
        "Title of d - Book > Keys\nSummary 2.",
    ]
    assert "a text from Title of d - Book > Keys." in chat.prompts[1]


def test_each_page_has_a_summary(store, writer, embedder):
    writer.create_collection("t", "pages", collection_settings(TREE, summaries=SummaryUnit.PAGE))
    half = len(LONG) // 2
    pages = (PageSpan(1, 0, half), PageSpan(2, half, len(LONG)))
    put(writer, document("d", ParsedText(LONG, (), pages)), "pages")
    with running(writer, embedder, FakeChat()):
        until(lambda: not unsummarised(writer, "pages"))
    assert [len(ranges) for ranges in ranges_of(store)] == [2]


def test_the_summary_of_an_only_section_is_the_summary_of_the_document(writer, embedder):
    put(writer, document("d", SHORT))
    chat = FakeChat()
    run_to_end(writer, embedder, chat)
    assert len(chat.prompts) == 1
    assert texts_of(writer) == ["Summary 1.", "Summary 1."]


def test_a_short_section_gets_no_summary(store, writer, embedder):
    writer.create_collection("t", "s", collection_settings(TREE, summaries=SummaryUnit.SECTION))
    text = sentences(20) + "Keys\n\n" + sentences(20, 1) + "End\n\n" + sentences(8, 2)
    starts = (0, text.index("Keys"), text.index("End"))
    outline = tuple(Section(f"Part {start}", 1, start) for start in starts)
    put(writer, document("d", ParsedText(text, outline)), "s")
    chat = FakeChat()
    with running(writer, embedder, chat, SummaryLimits(min_chars=500, max_tokens=1_000)):
        until(lambda: not unsummarised(writer, "s"))
    assert texts_of(writer, name="s") == ["Summary 3.", "Summary 1.", "Summary 2."]
    (ranges,) = ranges_of(store)
    assert ranges[-1].stop < document("d", text).tree.counts[0]


def test_a_short_document_gets_no_summary_and_no_longer_waits_for_one(store, writer, embedder):
    put(writer, document("d", "Only a few words."))
    chat = FakeChat()
    run_to_end(writer, embedder, chat, SummaryLimits(min_chars=18, max_tokens=1_000))
    assert chat.prompts == []
    assert ranges_of(store) == []
    assert writer.status(writer.open("t", "c")).summary_count == 0
    put(writer, document("d", "Some more words now."))
    run_to_end(writer, embedder, chat, SummaryLimits(min_chars=18, max_tokens=1_000))
    assert texts_of(writer) == ["Summary 1.", "Summary 1."]


def test_a_document_of_short_sections_has_a_summary(store, writer, embedder):
    put(writer, document("d", LONG))
    chat = FakeChat()
    run_to_end(writer, embedder, chat, SummaryLimits(min_chars=len(LONG) // 2, max_tokens=1_000))
    assert prompt_texts(chat.prompts) == [LONG.strip()]
    assert texts_of(writer) == ["Summary 1."]
    assert ranges_of(store) == [()]


def test_summaries_may_be_shorter_than_the_shortest_text_that_gets_one(writer, embedder):
    put(writer, document("d", LONG))
    chat = FakeChat()
    run_to_end(writer, embedder, chat, SummaryLimits(min_chars=100, max_tokens=1_000))
    assert len(texts_of(writer)) == len(chat.prompts) > 3


def test_without_a_model_the_summary_is_extracted_from_the_text(writer, embedder):
    put(writer, document("d", SHORT))
    run_to_end(writer, embedder)
    assert texts_of(writer) == [extract(SHORT, embedder)] * 2
    assert writer.status(writer.open("t", "c")).summary_tokens == 0


# The following tests cover the answers of the chat model.


@pytest.mark.parametrize("answer", ["", " \n\t "])
def test_after_an_empty_answer_the_summary_is_extracted_from_the_text(writer, embedder, answer):
    put(writer, document("d", SHORT))
    run_to_end(writer, embedder, FakeChat(lambda _: answer))
    assert texts_of(writer) == [extract(SHORT, embedder)] * 2
    assert writer.status(writer.open("t", "c")).summary_tokens == 7


@pytest.mark.parametrize("answer", ["word " * 1000, "字" * 5000, "\n\n x \r\n" * 3000])
def test_a_summary_is_one_line_of_bounded_length(writer, embedder, answer):
    put(writer, document("d", SHORT))
    run_to_end(writer, embedder, FakeChat(lambda _: answer))
    whole, section = texts_of(writer)
    assert whole == section == " ".join(answer.split())[:MAX_CHARS].strip()


def test_only_the_beginning_of_a_long_text_is_sent(writer, embedder):
    """The sections are too short for summaries, so the text of the whole document is sent."""
    text = sentences(1000)
    assert len(text) > MAX_PROMPT_CHARS + 1000
    put(writer, document("d", text))
    chat = FakeChat()
    run_to_end(writer, embedder, chat, SummaryLimits(len(text) // 2, max_tokens=100_000))
    assert prompt_texts(chat.prompts) == [text[:MAX_PROMPT_CHARS]]


def test_a_text_may_contain_the_placeholders_of_a_template(writer, embedder):
    text = "Braces {text} and {heading} and {0} and {{}} and %s stay."
    put(writer, document("d", text))
    chat = FakeChat()
    run_to_end(writer, embedder, chat)
    assert prompt_texts(chat.prompts) == [text]


# The following tests cover the limit of tokens.


def test_tokens_that_the_endpoint_does_not_report_are_counted(writer, embedder):
    put(writer, document("d", SHORT))
    chat = FakeChat(lambda _: "A summary.", ChatEnd(FinishReason.STOP))
    run_to_end(writer, embedder, chat)
    expected = len(tokens.encode(chat.prompts[0])) + len(tokens.encode("A summary."))
    assert writer.status(writer.open("t", "c")).summary_tokens == expected


def test_without_tokens_left_the_summaries_are_extracted_from_the_text(store, writer, embedder):
    put(writer, document("d", LONG))
    chat = FakeChat()
    run_to_end(writer, embedder, chat, SummaryLimits(min_chars=20, max_tokens=14))
    assert len(chat.prompts) == 2
    (ranges,) = ranges_of(store)
    _, *summaries = texts_of(writer)
    assert len(summaries) == len(ranges)
    assert summaries[:2] == ["Summary 1.", "Summary 2."]
    assert all(summary.startswith("Sentence ") for summary in summaries[2:])
    assert writer.status(writer.open("t", "c")).summary_tokens == 14


def test_the_documents_of_a_collection_share_its_token_limit(writer, embedder):
    writer.create_collection("t", "other", SETTINGS)
    for name in ("d", "e", "f"):
        put(writer, document(name, SHORT))
    put(writer, document("g", SHORT), "other")
    chat = FakeChat()
    with running(writer, embedder, chat, SummaryLimits(min_chars=20, max_tokens=8)):
        until(lambda: not unsummarised(writer) and not unsummarised(writer, "other"))
    assert len(chat.prompts) == 3
    assert texts_of(writer, "f") == [extract(SHORT, embedder)] * 2
    assert texts_of(writer, "g", "other")[0].startswith("Summary ")
    assert writer.status(writer.open("t", "c")).summary_tokens == 14


def test_a_limit_of_zero_tokens_allows_no_calls(writer, embedder):
    put(writer, document("d", SHORT))
    chat = FakeChat()
    run_to_end(writer, embedder, chat, SummaryLimits(min_chars=20, max_tokens=0))
    assert chat.prompts == []
    assert len(texts_of(writer)) == 2


def test_concurrent_calls_may_exceed_the_token_limit(writer, embedder):
    put(writer, document("d", LONG))
    chat, limits = SlowChat(), SummaryLimits(min_chars=20, max_tokens=1)
    with running(writer, embedder, chat, limits, replace(QUICK, max_calls=3)):
        for _ in range(3):
            assert chat.begun.acquire(timeout=WAIT_S)
        chat.resume.set()
        until(lambda: not unsummarised(writer))
    assert len(chat.prompts) == 3
    assert writer.status(writer.open("t", "c")).summary_tokens == 21
