"""Reasoning in a model's text is no part of its answer, however the text arrives in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.models.chat.reasoning_tags import ReasoningSplitter, TagUse, TextPiece
from hrag.values.answers import Reasoning

THOUGHT = "Passage [1] says that cats sleep."
ANSWER = "Dogs bark [1]."
UNKNOWN, UNTAGGED, CLOSING = TagUse.UNKNOWN, TagUse.UNTAGGED, TagUse.CLOSING
# The opening and the closing tag of each kind.
TAGS = [
    ("<think>", "</think>"),
    ("<Think>", "</THINK>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
]
ANSWER_TAGS = [
    ("<answer>", "</answer>"),
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
]


def joined(pieces: list[TextPiece]) -> tuple[str, str]:
    """Returns the reasoning and the answer. No piece is empty."""
    reasoning = [piece.text for piece in pieces if isinstance(piece, Reasoning)]
    answer = [piece for piece in pieces if isinstance(piece, str)]
    assert all(reasoning)
    assert all(answer)
    return "".join(reasoning), "".join(answer)


def split(
    *texts: str, tag_use: TagUse = UNKNOWN, is_complete: bool = True
) -> tuple[str, str, TagUse]:
    """Returns the reasoning, the answer, and what is known of the model after the reply."""
    splitter = ReasoningSplitter(tag_use)
    pieces = [piece for text in texts for piece in splitter.feed(text)]
    pieces += splitter.finish(is_complete=is_complete)
    return (*joined(pieces), splitter.tag_use)


def in_pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


@pytest.mark.parametrize("tag_use", TagUse)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(("opening", "closing"), TAGS)
def test_tagged_reasoning_is_separated(
    opening: str, closing: str, size: int, tag_use: TagUse
) -> None:
    text = f" \n{opening}{THOUGHT}{closing}\n\n{ANSWER}"
    reasoning, answer, known = split(*in_pieces(text, size), tag_use=tag_use)
    assert (reasoning, answer) == (THOUGHT, ANSWER)
    assert known is UNKNOWN  # The next reply may have only the closing tag.


@pytest.mark.parametrize("tag_use", [UNKNOWN, CLOSING])
@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize("closing", [closing for _, closing in TAGS])
def test_reasoning_with_only_a_closing_tag_is_separated(
    closing: str, size: int, tag_use: TagUse
) -> None:
    text = f"{THOUGHT}{closing}\n\n{ANSWER}"
    assert split(*in_pieces(text, size), tag_use=tag_use) == (THOUGHT, ANSWER, CLOSING)


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize(("opening", "closing"), ANSWER_TAGS)
def test_the_tags_of_an_answer_are_removed_after_reasoning(
    opening: str, closing: str, size: int
) -> None:
    text = f"<think>{THOUGHT}</think>\n{opening}{ANSWER}{closing}"
    assert split(*in_pieces(text, size))[:2] == (THOUGHT, ANSWER)
    unclosed = f"<think>{THOUGHT}</think>\n{opening}{ANSWER}"
    assert split(*in_pieces(unclosed, size))[:2] == (THOUGHT, ANSWER)


@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize("tag_use", TagUse)
def test_reasoning_that_is_not_closed_is_no_answer(tag_use: TagUse, is_complete: bool) -> None:
    text = f"<think>{THOUGHT}</thin"
    assert split(text, tag_use=tag_use, is_complete=is_complete)[:2] == (f"{THOUGHT}</thin", "")


@pytest.mark.parametrize(
    ("tag_use", "is_complete", "is_answer"),
    [
        (UNKNOWN, True, True),
        (UNKNOWN, False, True),
        (CLOSING, True, True),
        # Its template opens the tag, so the text was cut within the reasoning.
        (CLOSING, False, False),
        (UNTAGGED, False, True),
    ],
)
def test_text_without_tags_is_an_answer_unless_it_was_cut_within_reasoning(
    tag_use: TagUse, is_complete: bool, is_answer: bool
) -> None:
    reasoning, answer, known = split(ANSWER, tag_use=tag_use, is_complete=is_complete)
    assert (reasoning, answer) == (("", ANSWER) if is_answer else (ANSWER, ""))
    assert known is (UNTAGGED if is_complete else tag_use)


def test_text_is_passed_on_at_once_if_the_model_is_known_to_write_untagged_text() -> None:
    splitter = ReasoningSplitter(UNTAGGED)
    assert splitter.feed("<") == []
    assert splitter.feed("b> ") == ["<b> "]
    assert splitter.feed("Dogs") == ["Dogs"]


@pytest.mark.parametrize("tag_use", [UNKNOWN, CLOSING])
def test_text_is_held_back_until_it_is_known_to_be_no_reasoning(tag_use: TagUse) -> None:
    splitter = ReasoningSplitter(tag_use)
    assert splitter.feed("Dogs ") == []
    assert splitter.feed("bark.") == []
    assert splitter.finish(is_complete=True) == ["Dogs bark."]
    assert splitter.feed(" More.") == [" More."]


def test_reasoning_and_the_answer_after_it_are_passed_on_while_they_arrive() -> None:
    splitter = ReasoningSplitter(UNKNOWN)
    assert joined(splitter.feed("<think>" + "hm " * 100))[0].startswith("hm hm")
    assert joined(splitter.feed("</think>Dogs"))[1] == "Dogs"
    assert splitter.feed(" bark") == [" bark"]


def test_a_closing_tag_in_text_that_was_passed_on_makes_the_next_reply_wait() -> None:
    reasoning, answer, known = split(THOUGHT, "</th", "ink>", ANSWER, tag_use=UNTAGGED)
    assert (reasoning, answer, known) == ("", f"{THOUGHT}</think>{ANSWER}", UNKNOWN)


@pytest.mark.parametrize("held", ["", "Dogs ", " \n", "<thi"])
def test_no_text_is_held_back_if_the_server_separates_reasoning(held: str) -> None:
    splitter = ReasoningSplitter(UNKNOWN)
    pieces = [*splitter.feed(held), *splitter.expect_no_tags(), *splitter.feed("bark.")]
    assert joined(pieces) == ("", f"{held}bark.")
    assert splitter.tag_use is UNTAGGED


def test_reasoning_in_fields_and_in_tags_can_be_in_one_reply() -> None:
    splitter = ReasoningSplitter(UNKNOWN)
    pieces = [*splitter.expect_no_tags(), *splitter.feed(f"<think>{THOUGHT}")]
    pieces += [*splitter.expect_no_tags(), *splitter.feed(f"</think>{ANSWER}")]
    assert joined(pieces) == (THOUGHT, ANSWER)


def test_several_blocks_of_reasoning_are_separated() -> None:
    text = f"<think></think>\n\n<think>{THOUGHT}</think> <thinking>!</thinking>{ANSWER}"
    assert split(*in_pieces(text, 3))[:2] == (f"{THOUGHT}!", ANSWER)


@pytest.mark.parametrize("tag_use", TagUse)
@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(
    "text",
    [
        "The tag `</think>` ends it.",
        "`<think>` begins it.",
        "a < b </b>, <thing> <thin",
        "Use <think> with care.",
        "",
        "\n",
    ],
)
def test_an_answer_about_tags_stays_whole(text: str, size: int, tag_use: TagUse) -> None:
    assert split(*in_pieces(text, size), tag_use=tag_use)[:2] == ("", text)


def test_a_quoted_closing_tag_does_not_end_reasoning() -> None:
    text = f"<think>It ends with `</think>`. {THOUGHT}</think>{ANSWER}"
    assert split(*in_pieces(text, 4))[:2] == (f"It ends with `</think>`. {THOUGHT}", ANSWER)


ALPHABET = ("<think>", "</think>", "<answer>", "</answer>", "`", " ", "\n", "<", "a", "[/THINK]")


@given(st.lists(st.sampled_from(ALPHABET), max_size=12), st.integers(1, 9), st.sampled_from(TagUse))
def test_the_result_does_not_depend_on_the_pieces(
    parts: list[str], size: int, tag_use: TagUse
) -> None:
    text = "".join(parts)
    whole = split(text, tag_use=tag_use)
    assert split(*in_pieces(text, size), tag_use=tag_use) == whole
    if "think>" not in text.lower() and "[/think]" not in text.lower():
        assert whole[:2] == ("", text)
