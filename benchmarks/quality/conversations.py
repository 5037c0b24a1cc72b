"""`python -m benchmarks.quality.conversations DATA`: what is found for follow-up questions?

Makes 200 follow-up questions from the development sets in the folder DATA, asks each in several
forms in the mode CONTEXT, and prints a table of recall. The forms are the follow-up as it is, the
follow-up with words of the last turns, the question that a chat model makes of it, and the full
question. `--chat-url` and `--chat-model` name the chat model of an OpenAI-compatible endpoint. With
`--resume FILE`, a run that was stopped continues where it stopped.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.quality.follow_ups import SEED, FollowUp, follow_ups
from benchmarks.quality.run import TENANT, ingest
from benchmarks.quality.services import default_settings, serving
from benchmarks.quality.sets import NoSets, QualitySet, read_sets
from benchmarks.table import head, row
from hrag.client import Client
from hrag.evaluation.bootstrap import Estimate, estimates
from hrag.evaluation.journal import Journal, key_of
from hrag.evaluation.retrieval_metrics import RECALL, at_budget
from hrag.evaluation.searches import SearchTarget, search_all
from hrag.evaluation.summary import summarise
from hrag.evaluation.systems import parse_systems
from hrag.models.chat.openai_chat import OpenAIChat
from hrag.models.endpoint.endpoint_access import EndpointAccess
from hrag.text.conversation import with_last_turns
from hrag.types import StandaloneMethod, StandaloneQuestion
from hrag.values.deadline import NEVER
from retriever_svc.standalone_question import StandaloneQuestions

BUDGETS = (1000, 2000, 4000)
BARE, WORDS, FULL = "follow-up", "with words of the last turns", "full question"
# A full question after a conversation about something else: what do the added words cost?
DISTURBED = "full question, with words of another conversation"

Forms = dict[str, dict[str, list[str]]]
"""The texts to search for, by form and set, in the order of the follow-ups of the set."""


def forms(made: Mapping[str, Sequence[FollowUp]]) -> Forms:
    """Returns the forms that need no chat model."""
    draw = random.Random(SEED)
    others = {name: draw.sample(list(of_set), len(of_set)) for name, of_set in made.items()}
    return {
        BARE: {name: [entry.text for entry in of_set] for name, of_set in made.items()},
        WORDS: {
            name: [with_last_turns(entry.text, entry.history) for entry in of_set]
            for name, of_set in made.items()
        },
        FULL: {name: [entry.full.text for entry in of_set] for name, of_set in made.items()},
        DISTURBED: {
            name: [
                with_last_turns(entry.full.text, other.history)
                for entry, other in zip(of_set, others[name], strict=True)
            ]
            for name, of_set in made.items()
        },
    }


def form_of_model(
    made: Mapping[str, Sequence[FollowUp]],
    questions: StandaloneQuestions,
    model: str,
    journal: Journal,
) -> tuple[dict[str, list[str]], Counter[StandaloneMethod]]:
    """Returns the texts that a service with this model searches for, and how they were made.

    Questions whose texts are in the journal are not sent to the model again.
    """

    def made_standalone(entry: FollowUp) -> StandaloneQuestion:
        said = [[turn.role, turn.text] for turn in entry.history]
        key = key_of("standalone", model=model, question=entry.text, history=said)
        standalone = journal.get(key, StandaloneQuestion)
        if standalone is None:
            standalone = questions(entry.text, entry.history, NEVER)
            journal.put(key, standalone)
        return standalone

    texts: dict[str, list[str]] = {}
    methods: Counter[StandaloneMethod] = Counter()
    for name, of_set in made.items():
        standalone = list(map(made_standalone, of_set))
        methods.update(question.method for question in standalone)
        texts[name] = [question.text for question in standalone]
    return texts, methods


def recalls(
    client: Client, sets: Sequence[QualitySet], made: Mapping[str, Sequence[FollowUp]], asked: Forms
) -> dict[str, dict[int, list[float]]]:
    """Returns the recall of each question by form and budget, in the same order for all forms."""
    found: dict[str, dict[int, list[float]]] = {
        form: {budget: [] for budget in BUDGETS} for form in asked
    }
    systems = parse_systems("context")
    for quality_set in sets:
        of_set = made.get(quality_set.name, ())
        target = SearchTarget(TENANT, quality_set.collection, BUDGETS)
        for form, texts in asked.items():
            questions = [
                replace(entry.full, text=text)
                for entry, text in zip(of_set, texts.get(quality_set.name, ()), strict=True)
            ]
            outcomes = search_all(client, questions, systems, target, Journal(), lambda *_: None)
            measured = summarise(
                questions, systems, outcomes, target, baseline=systems[0].name, seed=SEED
            )
            for budget in BUDGETS:
                found[form][budget] += [
                    question.scores[systems[0].name][at_budget(RECALL, budget)]
                    for question in measured.questions
                ]
    return found


def table(found: Mapping[str, Mapping[int, Sequence[float]]]) -> Iterator[str]:
    """Yields the lines of a Markdown table: mean recall in % and its interval, by form and budget.

    In brackets, the share of the way from the follow-up to the full question.
    """
    yield from head("searched for", *(f"{budget:,} tokens" for budget in BUDGETS))
    cells = {budget: _cells(found, budget) for budget in BUDGETS}
    for number, form in enumerate(found):
        yield row(form, *(cells[budget][number] for budget in BUDGETS))


def _cells(found: Mapping[str, Mapping[int, Sequence[float]]], budget: int) -> list[str]:
    values = np.array([by_budget[budget] for by_budget in found.values()])
    measured = estimates(values, SEED)
    means = dict(zip(found, (estimate.mean for estimate in measured), strict=True))
    bare, full = means[BARE], means[FULL]
    return [
        _interval(estimate)
        if form in (BARE, FULL) or full == bare
        else f"{_interval(estimate)} ({100 * (estimate.mean - bare) / (full - bare):.0f} %)"
        for form, estimate in zip(found, measured, strict=True)
    ]


def _interval(estimate: Estimate) -> str:
    return f"{100 * estimate.mean:.1f} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.conversations")
    parser.add_argument("data", type=Path, help="folder of the development sets")
    parser.add_argument("--sets", nargs="+", default=[], help="names of the sets; all by default")
    parser.add_argument("--chat-url", default="", help="base URL of a chat model's endpoint")
    parser.add_argument("--chat-model", default="default", help="name of the chat model")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one question")
    parser.add_argument("--resume", type=Path, help="file of the chat model's finished questions")
    parser.add_argument("--embedder", default="builtin", help="HRAG_EMBEDDER of the services")
    options = parser.parse_args(arguments)
    try:
        sets = read_sets(options.data, options.sets)
    except NoSets as error:
        print(error, file=sys.stderr)
        return 2
    # A set across languages has the questions of another set again.
    sets = [known for known in sets if known.name == known.collection]
    made = follow_ups(sets)
    asked = forms(made)
    print({name: len(of_set) for name, of_set in made.items()}, flush=True)
    if options.chat_url:
        model = OpenAIChat(
            model=options.chat_model,
            access=EndpointAccess(options.chat_url, "none"),
            timeout_s=options.timeout,
        )
        standalone = StandaloneQuestions(model, options.timeout)
        with Journal(options.resume) as journal:
            texts, methods = form_of_model(made, standalone, options.chat_model, journal)
        asked[f"made by {options.chat_model}"] = texts
        print({str(method): count for method, count in methods.items()}, flush=True)
    with serving(default_settings(options.embedder)) as client:
        ingest(client, sets, print)
        for line in table(recalls(client, sets, made, asked)):
            print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
