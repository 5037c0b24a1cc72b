"""`hrag demo` has documents that answer its questions, waits for summaries, and measures fairly."""

from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hrag.cli.demo import compare_modes, percentile, wait_for_summaries
from hrag.cli.demo_corpus import QUESTIONS, StoredText, questions_from, topics
from hrag.types import IndexStatus, SearchMode, SearchResult, Timings
from hrag.values.ids import check_document_id


class FakeClient:
    """A client that answers every search immediately and records it."""

    def __init__(self) -> None:
        self.searches = []

    def search(self, tenant_id, query, *, mode):
        self.searches.append((query, mode))
        return SearchResult((), mode, 0, 2, 0, True, 1, Timings(1000, 10, 20, 30, 1060), None, 9)


class SummarisingClient:
    """A client that reports one document fewer without a summary at each call."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting

    def index_status(self, tenant_id, *, collection):
        self.waiting -= 1
        counts = {"summary_count": 12, "unsummarised_documents": self.waiting}
        return IndexStatus(1, 9, 9, 9, 9, 9, 9, **counts)


def wait(client: SummarisingClient, **limits: float) -> str:
    """Waits for summaries, and returns the printed text."""
    printed = StringIO()
    wait_for_summaries(client, Console(file=printed, width=200), **limits)
    return printed.getvalue()


def test_demo_waits_for_summaries():
    client = SummarisingClient(5)
    assert wait(client, poll_s=0) == "12 summaries, made of the documents' sentences\n"
    assert client.waiting == 0


def test_demo_stops_waiting_at_its_time_limit():
    assert wait(SummarisingClient(5), timeout_s=-1) == (
        "12 summaries, made of the documents' sentences; 4 documents still without summary\n"
    )


def test_topics_can_be_stored():
    documents = [source.read() for source in topics()]
    assert len(documents) > 50
    for document in documents:
        assert check_document_id(document.document_id)
        assert document.body.strip()
        assert document.title
        assert document.source == f"pydoc:{document.document_id}"


def test_a_topic_answers_every_question():
    names = {source.label for source in topics()}
    assert all(set(question.right) & names for question in QUESTIONS)
    assert len(QUESTIONS) >= 6


def test_questions_come_from_every_text_in_turn():
    first = StoredText(
        ("The first guide", "2. How to install it", "Keys"),
        "# The first guide\n\n## 2. How to install it\n\nFirst you open the box.",
    )
    second = StoredText(
        (), "One sentence to begin with. And another.\n\nA second paragraph comes here."
    )
    texts = [question.text for question in questions_from([first, second], 3)]
    assert texts == ["The first guide", "One sentence to begin with.", "How to install it"]


def test_the_same_question_is_not_asked_twice():
    assert len(questions_from([StoredText((), "Only this one sentence.")] * 3, 6)) == 1


@pytest.mark.parametrize("text", ["", "x", "```\ncode code code\n```", "# A\n", "y" * 500])
def test_text_without_sentences_gives_no_question(text):
    assert questions_from([StoredText(("A",), text)], 6) == []


def test_both_modes_run_the_same_queries_and_alternate():
    client = FakeClient()
    samples = compare_modes(client, "t", ["a", "b"], searches=5)
    measured = client.searches[4:]
    modes = [mode for _, mode in measured]
    assert [query for query, _ in measured] == list("aabbaabbaa")
    both = {SearchMode.STANDARD, SearchMode.SMALL_TO_BIG}
    assert all(set(pair) == both for pair in zip(modes[::2], modes[1::2], strict=True))
    assert len(set(modes[::2])) == 2
    assert {mode: len(measured) for mode, measured in samples.items()} == dict.fromkeys(both, 5)


def test_service_time_excludes_embedding():
    samples = compare_modes(FakeClient(), "t", ["a"], searches=1)
    assert {sample.service_us for measured in samples.values() for sample in measured} == {60}


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.integers(1, 100))
def test_percentile_is_the_nearest_rank(values, percent):
    result = percentile(values, percent)
    assert result in values
    assert sum(value <= result for value in values) * 100 >= percent * len(values)
    assert sum(value < result for value in values) * 100 < percent * len(values)
