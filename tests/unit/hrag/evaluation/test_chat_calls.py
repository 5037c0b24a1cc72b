"""Calls of a chat model: equal prompts share one, and a failed one spoils no other."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

from hrag.errors import ChatUnavailable
from hrag.evaluation.chat_calls import ChatCalls
from hrag.evaluation.journal import Journal
from tests.support.documents.evaluation_fakes import ToldChat

WAIT_S = 10


def test_an_equal_prompt_is_not_paid_for_twice() -> None:
    """Another limit of the reply makes another call."""
    chat = ToldChat(str.upper)
    calls = ChatCalls(chat, Journal())
    assert [calls.ask("one", 10), calls.ask("one", 10), calls.ask("one", 20)] == ["ONE"] * 3
    assert chat.prompts == ["one", "one"]
    assert (calls.usage.calls, calls.usage.prompt_tokens) == (2, 200)


def test_equal_prompts_at_a_time_share_one_call_and_others_do_not_wait() -> None:
    other_is_called, started = Event(), Barrier(4)

    def reply(prompt: str) -> str:
        if prompt == "other":
            other_is_called.set()
        return f"{prompt} {other_is_called.wait(WAIT_S)}"

    chat = ToldChat(reply)
    calls = ChatCalls(chat, Journal())

    def ask(prompt: str) -> str:
        started.wait(WAIT_S)
        return calls.ask(prompt, 10)

    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(ask, ["same", "same", "same", "other"]))
    assert replies == ["same True"] * 3 + ["other True"]
    assert sorted(chat.prompts) == ["other", "same"]
    assert calls.usage.calls == 2


def test_a_call_that_fails_is_made_again_by_one_that_waited_for_it() -> None:
    started = Barrier(3)

    def fail_once(prompt: str) -> str:
        if len(chat.prompts) == 1:
            raise ChatUnavailable("slow")
        return "reply"

    chat = ToldChat(fail_once)
    calls = ChatCalls(chat, Journal())

    def ask(_: int) -> str:
        started.wait(WAIT_S)
        try:
            return calls.ask("one", 10)
        except ChatUnavailable:
            return "failed"

    with ThreadPoolExecutor(3) as pool:
        assert sorted(pool.map(ask, range(3))) == ["failed", "reply", "reply"]
    assert (len(chat.prompts), calls.usage.calls, calls.usage.failed) == (2, 1, 1)
