"""Equal prompts share one call of the chat model, and a failed call affects no other caller."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

from hrag.errors import ChatUnavailable
from hrag.evaluation.chat_calls import ChatCalls
from hrag.evaluation.journal import Journal
from tests.support.documents.evaluation_fakes import ScriptedChat
from tests.support.until import PATIENCE_S


def test_equal_prompts_call_the_model_only_once() -> None:
    """The same prompt with another token limit is a separate call."""
    chat = ScriptedChat(str.upper)
    calls = ChatCalls(chat, Journal())
    assert [calls.ask("one", size).text for size in (10, 10, 20)] == ["ONE"] * 3
    assert chat.prompts == ["one", "one"]
    assert (calls.usage.calls, calls.usage.prompt_tokens) == (2, 200)


def test_concurrent_equal_prompts_share_one_call_and_other_prompts_do_not_wait() -> None:
    other_is_called, started = Event(), Barrier(4)

    def reply(prompt: str) -> str:
        if prompt == "other":
            other_is_called.set()
        return f"{prompt} {other_is_called.wait(PATIENCE_S)}"

    chat = ScriptedChat(reply)
    calls = ChatCalls(chat, Journal())

    def ask(prompt: str) -> str:
        started.wait(PATIENCE_S)
        return calls.ask(prompt, 10).text

    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(ask, ["same", "same", "same", "other"]))
    assert replies == ["same True"] * 3 + ["other True"]
    assert sorted(chat.prompts) == ["other", "same"]
    assert calls.usage.calls == 2


def test_after_a_failed_call_another_waiting_caller_repeats_it() -> None:
    started = Barrier(3)

    def fail_once(prompt: str) -> str:
        if len(chat.prompts) == 1:
            raise ChatUnavailable("slow")
        return "reply"

    chat = ScriptedChat(fail_once)
    calls = ChatCalls(chat, Journal())

    def ask(_: int) -> str:
        started.wait(PATIENCE_S)
        try:
            return calls.ask("one", 10).text
        except ChatUnavailable:
            return "failed"

    with ThreadPoolExecutor(3) as pool:
        assert sorted(pool.map(ask, range(3))) == ["failed", "reply", "reply"]
    assert (len(chat.prompts), calls.usage.calls, calls.usage.failed) == (2, 1, 1)
