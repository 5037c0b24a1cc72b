"""An extractive summary consists of the most central sentences of a text."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import EmbedderRejected, EmbedderUnavailable
from hrag.models.embedding import Vectors
from hrag.models.embedding.hashing import HashEmbedder
from hrag.text.sentences import MAX_SENTENCE_CHARS
from hrag.values.deadline import NEVER, Deadline
from indexer_svc.extractive import extract

MAX_CHARS = 500
BEES = [
    "Honey bees dance to tell the hive where flowers are.",
    "A bee that has found nectar flies home to the hive.",
    "The dance of the bees shows how far the flowers are.",
    "Bees carry pollen and nectar from flowers to the hive.",
]


class FakeEmbedder:
    """An embedder with fixed directions for sentences that contain certain words.

    All other sentences have the same direction, which is orthogonal to the fixed directions.
    `embedded_texts` records the texts.
    """

    name = "fake"
    max_tokens = 1000
    dimension = 8

    def __init__(self, **directions: Sequence[float]) -> None:
        self.directions = directions
        self.embedded_texts: list[str] = []

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        self.embedded_texts += texts
        return np.array([self._direction(text) for text in texts], np.float32)

    def _direction(self, text: str) -> Sequence[float]:
        for word, direction in self.directions.items():
            if word in text:
                padded = np.zeros(self.dimension)
                padded[: len(direction)] = direction
                return padded / np.linalg.norm(padded)
        return np.eye(self.dimension)[-1]


class FailingEmbedder(FakeEmbedder):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        raise self.error


def padded(text: str, chars: int = 240) -> str:
    """Returns a sentence of `chars` characters. Two of the default length fill a summary."""
    return f"{text} {'and so on ' * 50}"[: chars - 1].rstrip() + "."


# The following tests cover the choice of sentences.


def test_sentences_on_the_main_topic_of_the_text_are_chosen(builtin):
    strange = "The tax office in Oslo closes at noon on the last Friday of June."
    main_topic = [
        f"Bees fly to flower {n} and carry its nectar home to the hive." for n in range(12)
    ]
    summary = extract(" ".join([*BEES, strange, *main_topic]), builtin)
    assert "nectar" in summary
    assert "tax office" not in summary


def test_most_central_sentences_are_chosen():
    names = ["One", "Two", "Three", "Four", "Five"]
    near = {name: [1, *(0.5 * (n == at) for n in range(5))] for at, name in enumerate(names)}
    text = " ".join(padded(f"{name} begins") for name in ["Strange", *names])
    summary = extract(text, FakeEmbedder(**near))
    assert summary.count("begins") == 2
    assert "Strange" not in summary


def test_redundant_sentence_is_not_chosen():
    """The second sentence is nearer to the mean than the third one, but repeats the first one."""
    first, again, new = (padded(f"{name} begins") for name in ("First", "Again", "Fresh"))
    near = FakeEmbedder(First=[1, 0.1], Again=[1, 0.11], Fresh=[0.7, -0.7])
    assert extract(f"{first} {again} {new}", near) == f"{first} {new}"


def test_sentences_stay_in_the_order_of_the_text():
    """The order does not depend on which sentence is chosen first."""
    first, second, strange = (padded(f"{name} begins") for name in ("One", "Two", "Strange"))
    embedder = FakeEmbedder(One=[1, 0.5], Two=[1, 0, 0.6], Strange=[-1])
    assert extract(f"{first} {second} {strange}", embedder) == f"{first} {second}"
    assert extract(f"{second} {strange} {first}", embedder) == f"{second} {first}"


def test_repeated_sentence_is_chosen_once():
    near = FakeEmbedder()
    assert extract(f"{BEES[0]} " * 5 + BEES[1], near) == f"{BEES[0]} {BEES[1]}"
    assert near.embedded_texts == BEES[:2]


def test_chinese_sentences_are_separated(builtin):
    main_topic = [
        f"蜜蜂用舞蹈告诉同伴第{n}片花丛在哪里，并把花蜜和花粉带回蜂巢。" for n in range(30)
    ]
    strange = "奥斯陆的税务局在六月的最后一个星期五中午关门，届时无法办理任何业务。"
    summary = extract("".join([*main_topic[:15], strange, *main_topic[15:]]), builtin)
    assert "蜜蜂" in summary
    assert "税务局" not in summary
    assert len(summary) <= MAX_CHARS
    assert all(part in main_topic for part in summary.split(" "))


# The following tests cover the length of a summary.


@given(st.lists(st.integers(1, 900), max_size=30))
def test_summary_is_within_its_limit_or_one_sentence(lengths):
    words = [f"No {n} " + "word " * (chars // 5) + "end. " for n, chars in enumerate(lengths)]
    summary = extract("".join(words), HashEmbedder(8))
    assert len(summary) <= MAX_CHARS or summary.count("No ") == 1
    assert bool(summary) == bool(lengths)


def test_a_text_of_one_sentence_is_its_summary():
    embedder = FakeEmbedder()
    assert extract(f"  {BEES[0]}\n\n", embedder) == BEES[0]
    assert embedder.embedded_texts == []


def test_text_without_a_sentence_end_is_cut_at_the_sentence_limit():
    assert 0 < len(extract("word " * 5000, HashEmbedder(8))) <= MAX_SENTENCE_CHARS


def test_the_sentences_that_are_compared_are_spread_over_the_text():
    embedder = FakeEmbedder()
    extract(" ".join(f"This is sentence number {n} of many." for n in range(1001)), embedder)
    assert len(embedder.embedded_texts) == 100
    assert "number 0 " in embedder.embedded_texts[0]
    assert "number 1000 " in embedder.embedded_texts[-1]


# The following tests cover lines that are not sentences.


@pytest.mark.parametrize("text", ["", " \n ", "...", "--- ***\n\n!!!", "。。。！"])
def test_a_text_without_words_has_no_summary(text):
    assert extract(text, FakeEmbedder()) == ""


def test_short_lines_are_left_out():
    text = f"# Bees\n\n12\n\n{BEES[0]}\n\nFig. 3\n\n{BEES[1]}"
    assert extract(text, FakeEmbedder()) == f"{BEES[0]} {BEES[1]}"


def test_short_lines_are_chosen_if_there_is_nothing_else():
    assert extract("Eggs\n\nMilk\n\nTea\n\n---", FakeEmbedder()) == "Eggs Milk Tea"


def test_lines_of_a_sentence_are_joined():
    assert extract("Bees dance\n  to tell\twhere flowers are.", FakeEmbedder()) == (
        "Bees dance to tell where flowers are."
    )


# The following tests cover failures of the embedder.


def test_first_sentences_are_chosen_if_the_embedder_rejects_them():
    sentences = [padded(f"Sentence {n}") for n in range(5)]
    rejecting = FailingEmbedder(EmbedderRejected("no"))
    assert extract(" ".join(sentences), rejecting) == " ".join(sentences[:2])


def test_an_unavailable_embedder_raises_its_error():
    with pytest.raises(EmbedderUnavailable, match="down"):
        extract(" ".join(BEES), FailingEmbedder(EmbedderUnavailable("down")))
