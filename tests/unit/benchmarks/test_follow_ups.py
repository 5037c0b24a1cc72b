"""Follow-up questions are made from the questions of a set, and their recall is compared."""

import json
from pathlib import Path

import pytest

from benchmarks.quality.conversations import BARE, FULL, WORDS, form_of_model, forms, main, table
from benchmarks.quality.follow_ups import FollowUp, follow_ups
from benchmarks.quality.sets import QualitySet, read_sets
from hrag.evaluation.journal import Journal
from hrag.models.chat import ChatEnd, Pieces
from hrag.types import FinishReason, StandaloneMethod, TurnRole
from hrag.values.deadline import Deadline
from retriever_svc.standalone_question import StandaloneQuestions

TEXTS = {"cancer": "Surgery treats it. Smoking causes it.", "水母": "栉水母有小触手。"}
QUESTIONS = {
    "What are the treatments for Breast Cancer?": ("cancer", 0, 18),
    "Why does Breast Cancer occur?": ("cancer", 19, 37),
    "What can be done?": ("cancer", 0, 18),
    "栉水母的小触手叫什么？": ("水母", 0, 8),
    "栉水母用什么捕捉猎物？": ("水母", 3, 8),
}


@pytest.fixture
def sets(tmp_path: Path) -> list[QualitySet]:
    """One set with a subject in English and one in Chinese."""
    folder = tmp_path / "small"
    folder.mkdir()
    corpus = [{"doc_id": name, "title": "", "text": text} for name, text in TEXTS.items()]
    queries = [
        {
            "qid": f"q{number}",
            "query": text,
            "gold": [{"doc_id": document_id, "start": start, "end": end}],
        }
        for number, (text, (document_id, start, end)) in enumerate(QUESTIONS.items())
    ]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, "utf-8")
    (folder / "meta.json").write_text("{}")
    return read_sets(tmp_path)


def _by_full(sets: list[QualitySet]) -> dict[str, FollowUp]:
    return {made.full.text: made for made in follow_ups(sets)["small"]}


def test_a_pronoun_or_nothing_stands_in_place_of_the_subject(sets: list[QualitySet]) -> None:
    made = {full: follow_up.text for full, follow_up in _by_full(sets).items()}
    treatments, why, *_ = QUESTIONS
    assert made.keys() == QUESTIONS.keys() - {"What can be done?"}
    assert made[treatments] in ("What are the treatments for it?", "What are the treatments?")
    assert made[why] == "Why does it occur?"
    assert made["栉水母的小触手叫什么？"] in ("它的小触手叫什么？", "的小触手叫什么？")


def test_the_history_names_the_subject_and_the_gold_stays(sets: list[QualitySet]) -> None:
    treatments, why, *_ = QUESTIONS
    made = _by_full(sets)[treatments]
    question, answer = made.history
    assert (question.role, question.text) == (TurnRole.USER, why)
    assert (answer.role, answer.text) == (TurnRole.ASSISTANT, "Smoking causes it.")
    assert made.full in sets[0].questions


def test_the_same_follow_ups_are_made_in_every_run(sets: list[QualitySet]) -> None:
    assert follow_ups(sets) == follow_ups(sets)
    assert [made.text for made in follow_ups(sets, 2)["small"]] == [
        made.text for made in follow_ups(sets)["small"][:2]
    ]


class EchoingChat:
    """A chat model that writes the full question about breast cancer, and counts its requests."""

    name = "echo"
    requests = 0

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        self.requests += 1
        yield "What are the treatments for Breast Cancer?"
        yield ChatEnd(FinishReason.STOP)

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> object:
        raise AssertionError("texts are streamed")


def test_a_stopped_run_does_not_ask_the_model_again(sets: list[QualitySet], tmp_path: Path) -> None:
    made, model = follow_ups(sets), EchoingChat()
    for _ in range(2):
        with Journal(tmp_path / "journal") as journal:
            questions = StandaloneQuestions(model, 5.0)
            texts, methods = form_of_model(made, questions, "echo", journal)
        assert model.requests == 4
    assert texts["small"].count("What are the treatments for Breast Cancer?") == 1
    assert methods == {StandaloneMethod.MODEL: 1, StandaloneMethod.LAST_TURNS: 3}


def test_the_words_of_the_history_are_one_of_the_forms(sets: list[QualitySet]) -> None:
    asked = forms(follow_ups(sets))
    assert all(text.endswith(("Breast Cancer", "什么", "猎物")) for text in asked[WORDS]["small"])
    assert sorted(asked[FULL]["small"]) == sorted(QUESTIONS.keys() - {"What can be done?"})


def test_the_table_says_how_much_of_the_way_a_form_covers() -> None:
    budgets = (1000, 2000, 4000)
    shares = {BARE: 0.25, WORDS: 0.5, FULL: 0.75}
    found = {form: dict.fromkeys(budgets, [share] * 30) for form, share in shares.items()}
    _, _, bare, words, full = table(found)
    assert bare.startswith(f"| {BARE} | 25.0 [25.0, 25.0] | ")
    assert words.startswith(f"| {WORDS} | 50.0 [50.0, 50.0] (50 %) | ")
    assert full.startswith(f"| {FULL} | 75.0 [75.0, 75.0] | ")


def test_without_development_sets_the_command_says_what_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2
    assert "contains no development set" in capsys.readouterr().err
