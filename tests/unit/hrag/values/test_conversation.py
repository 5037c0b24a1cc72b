"""The turns of a conversation have limits, and a client can cut a conversation to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import InvalidArgument, TooLarge
from hrag.types import MAX_HISTORY_BYTES, MAX_HISTORY_TURNS, ConversationTurn, TurnRole
from hrag.values.conversation import check_history, latest_turns

TEXTS = st.sampled_from(["dogs", "狗", " ", "", "狗" * 2000, "a" * MAX_HISTORY_BYTES, "é" * 9000])
TURNS = st.lists(st.builds(ConversationTurn, st.sampled_from(TurnRole), TEXTS), max_size=40)


def _turn(text: str) -> ConversationTurn:
    return ConversationTurn(TurnRole.USER, text)


def test_the_texts_of_all_turns_together_have_a_limit() -> None:
    fits = [_turn("狗" * (MAX_HISTORY_BYTES // 6))] * 2
    check_history(fits)
    with pytest.raises(TooLarge, match="of history have 16385 bytes; at most 16384") as refused:
        check_history([*fits, _turn("12345")])
    assert refused.value.field == "history"


def test_a_blank_turn_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"history\.1\.text is blank"):
        check_history([_turn("a"), _turn(" \n"), _turn("b")])


@given(TURNS)
def test_the_latest_turns_are_a_valid_history_that_ends_like_the_conversation(
    turns: list[ConversationTurn],
) -> None:
    latest = latest_turns(turns)
    check_history(latest)
    assert len(latest) <= MAX_HISTORY_TURNS
    with_text = [turn for turn in turns if turn.text.strip()]
    kept = with_text[len(with_text) - len(latest) :]
    assert latest[1:] == tuple(kept[1:])
    if latest:
        assert latest[0].role is kept[0].role
        assert kept[0].text.startswith(latest[0].text)
    if sum(len(turn.text.encode()) for turn in with_text) <= MAX_HISTORY_BYTES:
        assert latest == tuple(with_text[-MAX_HISTORY_TURNS:])
