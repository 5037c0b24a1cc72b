"""Answers are streamed, cite passages and can be stopped. The page shows failed answers."""

import pytest

from tests.browser.conftest import Served
from tests.browser.explorer import Explorer, expect
from tests.browser.site import ATTACK, MANY
from tests.support.servers.openai_server import before_event, events, piece, refuse, says

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def _no_faults_left(served: Served) -> None:
    served.chat.forget_faults()


def ask(explorer: Explorer, question: str = "gasket torque") -> None:
    explorer.show("answer")
    ask_next(explorer, question)


def ask_next(explorer: Explorer, question: str) -> None:
    """Asks a question without loading the page again."""
    explorer.page.get_by_role("textbox", name="Question").fill(question)
    explorer.page.keyboard.press("Enter")


def test_citations_lead_to_the_sentence(explorer: Explorer, served: Served) -> None:
    served.chat.inject(says("Use torque 40 😀 [1]. ", "It is `x[1]` and ", "known [1, 2]."))
    ask(explorer)
    answer = explorer.region("Answer")
    expect(answer.get_by_text("The model ended its answer.")).to_be_visible()
    expect(answer).to_contain_text("openai/test-model")
    text = answer.locator(".answer-text")
    expect(text.get_by_role("button")).to_have_text(["1", "1", "2"])
    expect(text.locator("code")).to_have_text("x[1]")
    statements = answer.locator(".statement")
    expect(statements.first).to_have_text("Use torque 40 😀")
    text.get_by_role("button", name="Citation of passage 2").click()
    passages = explorer.region("Passages of the answer").get_by_role("article")
    expect(passages.nth(1)).to_be_focused()
    expect(passages.nth(1).locator(".mark-aim").first).to_be_in_viewport()


def test_brackets_without_a_citation_stay_text(explorer: Explorer, served: Served) -> None:
    no_citations = "[1200-1999] [1-30000000] [1-9999999999] [1, 2000] [01] [1】 [3-1 ,2000]"
    served.chat.inject(
        says("Torque 40 [1, 1]. ", f"From {no_citations}. ", "Known [2, 3-1]【1-2】.")
    )
    ask(explorer)
    text = explorer.region("Answer").locator(".answer-text")
    expect(text.get_by_role("button")).to_have_text(["1", "2", "1", "2"])
    expect(text).to_contain_text(f"From {no_citations}. Known")


def test_the_text_appears_while_it_is_written_and_can_be_stopped(
    explorer: Explorer, served: Served
) -> None:
    served.chat.inject(events(piece("First words "), 30.0, piece("never")))
    ask(explorer)
    answer = explorer.region("Answer")
    expect(answer.locator(".is-writing")).to_have_text("First words ")
    expect(explorer.region("Passages of the answer").get_by_role("article").first).to_be_visible()
    explorer.page.get_by_role("button", name="Stop").click()
    expect(answer.get_by_text("Stopped.")).to_be_visible()
    expect(explorer.page.get_by_role("button", name="Stop")).to_be_hidden()


def test_reasoning_is_folded_above_the_text_and_stays_there(
    explorer: Explorer, served: Served
) -> None:
    served.chat.inject(says("<think>Look at [1]. <b>", "Hm.</think>", "Use torque 40 [1]."))
    ask(explorer)
    answer = explorer.region("Answer")
    expect(answer.get_by_text("The model ended its answer.")).to_be_visible()
    expect(answer.locator(".answer-text")).to_have_text("Use torque 40 1.")
    reasoning = answer.locator(".reasoning-text")
    expect(reasoning).to_be_hidden()
    answer.get_by_text("Reasoning of the model").click()
    expect(reasoning).to_be_visible()
    expect(reasoning).to_have_text("Look at [1]. < b>Hm.")
    served.chat.inject(says("No reasoning."))
    ask(explorer, "valve")
    expect(answer.locator(".answer-text")).to_have_text("No reasoning.")
    expect(answer.get_by_text("Reasoning of the model")).to_be_hidden()


def test_an_answer_without_its_end_is_an_error(explorer: Explorer) -> None:
    stream = 'event: passages\ndata: {}\n\nevent: text\ndata: "The valve must be"\n\n'
    explorer.page.route(
        "**/Answer", lambda call: call.fulfill(content_type="text/event-stream", body=stream)
    )
    ask(explorer)
    answer = explorer.region("Answer")
    expect(answer.get_by_role("alert")).to_contain_text("the answer ended early")
    expect(answer.locator(".answer-text")).to_have_text("The valve must be")


def test_another_collection_ends_the_answer_and_removes_it(
    explorer: Explorer, served: Served
) -> None:
    served.chat.inject(events(piece("First words "), 30.0, piece("never")))
    ask(explorer)
    answer = explorer.region("Answer")
    expect(answer.locator(".is-writing")).to_have_text("First words ")
    with explorer.page.expect_event("requestfailed"):
        explorer.page.get_by_label("Collection", exact=True).select_option(MANY)
    expect(explorer.page.get_by_role("button", name="Stop")).to_be_hidden()
    expect(answer).to_have_attribute("aria-busy", "false")
    expect(answer.get_by_text("No answer yet")).to_be_visible()
    expect(answer).not_to_contain_text("Stopped.")


def test_a_model_that_fails_leaves_the_passages(explorer: Explorer, served: Served) -> None:
    served.chat.inject(before_event(1, None))
    ask(explorer)
    answer = explorer.region("Answer")
    expect(answer.get_by_text("The model failed")).to_be_visible()
    expect(answer.locator(".answer-text")).to_contain_text("Dogs")
    expect(answer).to_contain_text("The text that it wrote before the failure is valid.")
    served.chat.inject(refuse(400))
    ask(explorer)
    expect(answer.get_by_text("The model failed before it wrote anything.")).to_be_visible()
    expect(answer).to_contain_text("ended after")
    expect(answer).not_to_contain_text("first text after")
    expect(explorer.region("Passages of the answer").get_by_role("article").first).to_be_visible()


def test_a_models_markup_stays_text(explorer: Explorer, served: Served) -> None:
    served.chat.inject(says(f"`{ATTACK}` [1]."))
    ask(explorer)
    text = explorer.region("Answer").locator(".answer-text")
    expect(text.get_by_role("button")).to_have_count(1)
    expect(text).to_contain_text("onerror")
    assert explorer.page.evaluate("window.attacked") is None


def test_a_question_may_refer_to_the_questions_before(explorer: Explorer, served: Served) -> None:
    view = explorer.page.get_by_role("tabpanel")
    conversation = view.locator(".conversation")
    expect(conversation).to_be_hidden()
    served.chat.inject(says("Torque 40 [1]."))
    ask(explorer)
    expect(conversation).to_be_visible()
    expect(conversation.get_by_role("listitem")).to_have_count(0)
    served.chat.inject(says("What is the torque of the gasket?"))
    served.chat.inject(says("It is 40 [1]."))
    ask_next(explorer, "and what is it?")
    passages = explorer.region("Passages of the answer")
    expect(passages).to_contain_text("Searched for: What is the torque of the gasket?")
    expect(explorer.region("Answer").get_by_role("listitem")).to_contain_text("It is 40")
    expect(conversation.get_by_role("listitem")).to_have_text("gasket torqueTorque 40 [1].")
    prompt = served.chat.requests[-1]["messages"][0]["content"]
    assert "User:\n> gasket torque\n\nAssistant:\n> Torque 40" in prompt
    served.chat.inject(refuse(400))
    ask_next(explorer, "why?")
    expect(passages.locator(".warning")).to_contain_text("Words of the last questions were added")
    expect(explorer.region("Answer").get_by_text("The model ended its answer.")).to_be_visible()
    expect(conversation.get_by_role("listitem")).to_have_count(2)
    conversation.get_by_role("button", name="New conversation").click()
    expect(conversation).to_be_hidden()
    ask_next(explorer, "gasket torque")
    expect(explorer.region("Answer").get_by_text("The model ended its answer.")).to_be_visible()
    assert "User:" not in served.chat.requests[-1]["messages"][0]["content"]


def test_without_passages_the_model_is_not_called(explorer: Explorer) -> None:
    explorer.show("answer")
    explorer.page.get_by_text("Search setting").click()
    explorer.page.get_by_role("tabpanel").get_by_label("Retrieval").select_option("LEXICAL")
    explorer.page.get_by_role("textbox", name="Question").fill("nonesuch")
    explorer.page.get_by_role("button", name="Answer", exact=True).click()
    expect(explorer.region("Answer").get_by_text("the model was not called")).to_be_visible()


def test_a_conversation_is_cut_to_the_limits_of_the_server(explorer: Explorer) -> None:
    explorer.page.route(
        "**/GetServerInfo",
        lambda call: call.fulfill(json={"limits": {"historyTurns": 3, "historyBytes": "20"}}),
    )
    explorer.show("answer")
    histories = explorer.page.evaluate(
        """async () => {
          const { Conversation } = await import("./conversation.js");
          const conversation = new Conversation(() => {});
          const empty = await conversation.history();
          conversation.add("first", "one");
          conversation.add("ab", "cd");
          const three = await conversation.history();
          conversation.add("a question 😀", "劳动合同法");
          return [empty, three, await conversation.history()];
        }"""
    )
    texts = [[turn["text"] for turn in history] for history in histories]
    assert texts == [[], ["one", "ab", "cd"], ["a question", "劳动合"]]
