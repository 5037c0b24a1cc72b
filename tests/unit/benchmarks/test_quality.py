"""The benchmark of quality reads development sets and makes figures, tables and verdicts."""

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.figures import Figure, Results
from benchmarks.quality import __main__ as command
from benchmarks.quality import reports, run
from benchmarks.quality.__main__ import main
from benchmarks.quality.oracle import Oracle
from benchmarks.quality.run import (
    REPORT_SYSTEMS,
    SYSTEMS,
    CallsFailed,
    below_dense,
    eligible_shares,
    figures,
    ingest,
    systems_for,
    systems_of,
)
from benchmarks.quality.sets import NoSets, QualitySet, read_sets
from benchmarks.quality.tables import tables
from benchmarks.quality.targets import BY_DOCUMENTS, BY_SECTIONS, TARGETS, two_tier_target
from benchmarks.run_folder import FIGURES, LATEST, STORED, TABLES, RunFolder
from hrag.client import Client
from hrag.evaluation.context_budget import BudgetedText
from hrag.evaluation.questions import GoldSpan, TextSpan
from hrag.evaluation.retrieved import RetrievalResult
from hrag.evaluation.searches import DEFAULT_BUDGETS, SearchTarget
from hrag.evaluation.summary import RetrievalFigures, summarise
from hrag.types import SearchMode, SettingsRequest, SummaryUnit

MINIATURE = Path(__file__).parents[2] / "data" / "quality"
ABOUT = {
    "mode": "quality",
    "commit": "c0ffee",
    "date": "2026-11-22T00:00:00",
    "embedder": "builtin",
    "versions": {"python": "3.11"},
}


def measured_share(name: str, share: float) -> RetrievalFigures:
    """Returns the figures of systems that find this share of each question's first gold span."""
    (quality_set,) = read_sets(MINIATURE)
    systems = systems_of(name)
    rows = []
    for question in quality_set.questions:
        gold = question.gold[0]
        assert isinstance(gold, GoldSpan)
        document_id, start, end = gold.span
        span = TextSpan(document_id, start, start + round(share * (end - start)))
        texts = {budget: BudgetedText((span,), 5) for budget in DEFAULT_BUDGETS}
        rows.append(RetrievalResult((span,), texts, ((), ()), 1000, 0, 1))
    outcomes = {system.name: list(rows) for system in systems}
    return summarise(
        quality_set.questions,
        systems,
        outcomes,
        SearchTarget("t"),
        baseline=systems[-1].name,
        seed=0,
    )


def results(share: float = 1.0, **changed: object) -> Results:
    (quality_set,) = read_sets(MINIATURE)
    measured = figures(
        quality_set, measured_share("context,standard:dense", share), "make bench-quality"
    )
    about = {**ABOUT, "sets": ["miniature"], "systems": ["context", "standard:dense"]}
    changed_figures = {key: figure.model_copy(update=changed) for key, figure in measured.items()}
    return Results(about=about, figures=changed_figures)


def test_a_folder_is_read_set_by_set() -> None:
    (quality_set,) = read_sets(MINIATURE)
    assert (quality_set.name, quality_set.collection, len(quality_set.questions)) == (
        "miniature",
        "miniature",
        20,
    )
    assert len(list(quality_set.documents())) == 12


def test_parallel_sets_give_questions_across_languages(tmp_path: Path) -> None:
    for language, text in (("en", "The fox"), ("zh", "狐狸")):
        folder = tmp_path / f"fox_{language}"
        folder.mkdir()
        (folder / "meta.json").write_text("{}")
        document = {"doc_id": f"fox-{language}", "text": text}
        (folder / "corpus.jsonl").write_text(json.dumps(document))
        gold = [{"doc_id": f"fox-{language}", "start": 0, "end": 2}]
        query = {"qid": language, "query": text, "gold": gold, "orig_id": "1"}
        (folder / "queries.jsonl").write_text(json.dumps(query))
    sets = {quality_set.name: quality_set for quality_set in read_sets(tmp_path)}
    assert list(sets) == ["fox_en", "fox_zh", "fox_zh_to_en"]
    (across,) = sets["fox_zh_to_en"].questions
    assert (across.text, across.document_ids) == ("狐狸", ("fox-en",))
    assert sets["fox_zh_to_en"].collection == "fox_en"
    assert [quality_set.name for quality_set in read_sets(tmp_path, ["fox_zh"])] == ["fox_zh"]
    with pytest.raises(NoSets, match="has no set hen, but fox_en, fox_zh"):
        read_sets(tmp_path, ["hen"])


@pytest.mark.parametrize("arguments", [[], ["nowhere"], [str(MINIATURE / "miniature")]])
def test_the_error_for_a_folder_without_sets_lists_the_expected_files(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    message = capsys.readouterr().err
    for name in ("corpus.jsonl", "queries.jsonl", "meta.json", "qid, query, gold"):
        assert name in message


@pytest.mark.parametrize(
    ("only", "measured"),
    [
        ([], ["miniature", "reports"]),
        (["reports"], ["reports"]),
        (["miniature"], ["miniature"]),
        (["reports", "miniature"], ["miniature", "reports"]),
    ],
)
def test_the_reports_are_a_set_beside_those_of_the_folder(
    only: list[str], measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (miniature,) = read_sets(MINIATURE)
    monkeypatch.setattr(reports, "report_set", lambda seed: replace(miniature, name="reports"))
    assert [quality_set.name for quality_set in command._sets(MINIATURE, only)] == measured


def test_only_the_reports_need_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sets", "reports", "covid_qa"]) == 2
    assert "Name the folder of covid_qa" in capsys.readouterr().err


def test_reports_of_another_seed_are_not_compared_with_the_stored_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (miniature,) = read_sets(MINIATURE)
    seeds = []

    def report_set(seed: int) -> QualitySet:
        seeds.append(seed)
        return miniature

    monkeypatch.setattr(reports, "report_set", report_set)
    monkeypatch.setattr(command, "serving", nullcontext)
    monkeypatch.setattr(command, "run", lambda *_: results(0.5))
    results().write(tmp_path / STORED / FIGURES)
    arguments = ["--sets", "reports", "--results", str(tmp_path)]
    assert main(arguments) == 1
    assert "WORSE" in capsys.readouterr().out
    assert main([*arguments, "--report-seed", "7"]) == 0
    assert "WORSE" not in capsys.readouterr().out
    assert seeds == [reports.SEED, 7]


class UnsummarisedClient:
    """A client of an indexer that writes one of `waiting` summaries between two calls."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self.settings: list[SettingsRequest] = []

    def create_collection(self, tenant_id: str, name: str, settings: SettingsRequest) -> None:
        self.settings.append(settings)

    def ingest_many(self, tenant_id: str, documents: object, *, collection: str) -> list[object]:
        return []

    def index_status(self, tenant_id: str, *, collection: str) -> SimpleNamespace:
        self.waiting -= 1
        return SimpleNamespace(unsummarised_documents=self.waiting + 1)


def test_questions_wait_until_all_summaries_of_sections_are_written() -> None:
    client = UnsummarisedClient(1)
    ingest(cast("Client", client), read_sets(MINIATURE), print)
    assert client.waiting == -1
    assert client.settings == [SettingsRequest(summaries=SummaryUnit.SECTION)]


def test_a_run_ends_if_summaries_are_missing_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_SUMMARIES_S", -1.0)
    with pytest.raises(CallsFailed, match="3 documents of miniature have no summary after"):
        ingest(cast("Client", UnsummarisedClient(3)), read_sets(MINIATURE), print)


def test_every_target_is_measured_by_default() -> None:
    assert len(TARGETS) == 4 * 4 * 4
    systems = {system.name for system in systems_of(SYSTEMS)}
    assert len(systems) == 15
    assert {system.mode for system in systems_of(SYSTEMS)} == set(SearchMode)
    assert {system for _, system, _ in TARGETS} <= systems
    assert {budget for _, _, budget in TARGETS} == set(DEFAULT_BUDGETS)
    assert TARGETS["covid_qa", "context", 1000] == pytest.approx(0.85)
    assert TARGETS["stard_laws", "small_to_big", 8000] == pytest.approx(0.94)


def test_the_reports_are_asked_in_five_systems_or_in_those_that_are_compared() -> None:
    (miniature,) = read_sets(MINIATURE)
    report_set = replace(miniature, name=reports.NAME)
    assert systems_for(miniature, SYSTEMS) == systems_of(SYSTEMS)
    assert [system.name for system in systems_for(report_set, SYSTEMS)] == list(REPORT_SYSTEMS)
    assert set(REPORT_SYSTEMS) <= {system.name for system in systems_of(SYSTEMS)}
    assert systems_for(report_set, "context:dense") == systems_of("context:dense")


def test_two_tiers_are_within_a_point_and_pay_on_the_reports() -> None:
    assert two_tier_target("covid_qa", BY_SECTIONS, 0.9) == pytest.approx(0.89)
    assert two_tier_target("covid_qa", BY_DOCUMENTS, 0.9) is None
    assert two_tier_target("reports", "context", 0.9) is None
    for system in (BY_SECTIONS, BY_DOCUMENTS):
        pays = two_tier_target("reports", system, 0.9)
        assert pays is not None
        assert 0.9 < pays < 0.91
        assert two_tier_target("reports", system, 1.0) == 1


@pytest.mark.parametrize(
    ("set_name", "best", "found", "met"),
    [
        ("miniature", 1.0, 0.995, True),
        ("miniature", 1.0, 0.9, False),
        ("reports", 0.9, 0.9, False),
        ("reports", 0.9, 0.95, True),
    ],
)
def test_the_target_of_two_tiers_depends_on_small_to_big(
    set_name: str, best: float, found: float, met: bool
) -> None:
    measured = measured_share("small_to_big", best)
    two_tiers = measured_share(BY_SECTIONS, found).systems
    measured = replace(measured, systems=(*measured.systems, *two_tiers))
    (quality_set,) = read_sets(MINIATURE)
    named = figures(replace(quality_set, name=set_name), measured, "test")
    key = f"quality.{set_name}.summary_first_summary_scope_sections"
    assert {named[f"{key}.recall_{budget}"].met for budget in DEFAULT_BUDGETS} == {met}
    assert named[f"{key}.mrr"].target is None
    alone = replace(measured, systems=two_tiers)
    without = figures(replace(quality_set, name=set_name), alone, "test")
    assert without[f"{key}.recall_1000"].target is None


def test_the_share_of_eligible_leaves_stands_beside_the_recall_of_two_tiers() -> None:
    systems = systems_of(f"context,{BY_SECTIONS}")
    outcomes = {
        system.name: [
            RetrievalResult((), {}, (), 1, 0, 1, eligible_leaves=count) for count in (20, 30)
        ]
        for system in systems
    }
    shares = eligible_shares(systems, outcomes, 200)
    assert shares == {BY_SECTIONS: pytest.approx(0.125)}
    (quality_set,) = read_sets(MINIATURE)
    measured = measured_share(f"context,{BY_SECTIONS}", 1.0)
    shown = figures(quality_set, measured, "test", shares)
    key = "quality.miniature.summary_first_summary_scope_sections.eligible_leaves"
    assert (shown[key].value, shown[key].is_compared) == (0.125, False)
    about = {**ABOUT, "sets": ["miniature", "absent"], "systems": ["context", BY_SECTIONS]}
    lines = list(tables(Results(about=about, figures=shown)))
    # Two questions have two answers each, of which the first is found.
    assert "| context | 95.0 95.0 95.0 95.0 | none |" in lines
    assert f"| {BY_SECTIONS} | 95.0 95.0 95.0 95.0 (12.5) | none |" in lines
    assert sum("(12.5)" in line for line in lines) == 1


def test_a_figure_has_the_target_of_its_set_system_and_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TARGETS, ("miniature", "context", 2000), 0.5)
    monkeypatch.setitem(TARGETS, ("miniature", "context", 4000), 1.0)
    measured = results(0.9).figures
    assert len(measured) == 2 * (4 + 2 + 1)
    keys = [f"quality.miniature.context.recall_{budget}" for budget in DEFAULT_BUDGETS]
    assert [measured[key].met for key in keys] == [None, True, False, None]
    dense = measured["quality.miniature.standard_dense.recall_2000"]
    assert (dense.target, dense.noise, dense.unit) == (None, None, "share")
    assert dense.sizes == {"questions": 20, "documents": 12}
    assert not measured["quality.miniature.context.latency_p50"].is_compared


def test_a_mode_that_finds_less_than_its_dense_variant_is_reported() -> None:
    measured = measured_share("standard,standard:dense", 1.0)
    assert below_dense(measured) == []
    better = measured.systems[1]
    worse = measured_share("standard", 0.5).systems[0]
    mixed = RetrievalFigures(
        budgets=measured.budgets,
        baseline="standard:dense",
        seed=0,
        resamples=1,
        expects_documents=False,
        systems=(worse, better),
        questions=(),
        warnings=(),
    )
    assert len(below_dense(mixed)) == 4
    assert below_dense(mixed)[0].startswith("standard recall@1000: ")


def test_tables_mark_figures_that_miss_their_target() -> None:
    shown = "\n".join(tables(results(met=False)))
    assert "|  | miniature |" in shown
    assert "| context | **" in shown
    assert "**" not in "\n".join(tables(results())).replace("**bold**", "")


def test_a_run_is_compared_with_the_stored_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def verdict(latest: Results) -> int:
        return folder.judge(latest, "store it", partial=False)

    folder = RunFolder(tmp_path, tables)
    assert verdict(results()) == 0
    assert "no stored run to compare with; `store it`" in capsys.readouterr().out
    folder.store()
    assert "# What a search finds" in (tmp_path / STORED / TABLES).read_text()
    assert verdict(results()) == 0
    assert "equal to the stored run" in capsys.readouterr().out
    assert verdict(results(0.9)) == 1
    assert "WORSE" in capsys.readouterr().out
    assert verdict(results(met=False, target=1.0)) == 1
    assert "the target is >= 1" in capsys.readouterr().out
    shutil.rmtree(tmp_path / LATEST)
    assert main(["--store", "--results", str(tmp_path)]) == 2


def test_missing_figures_are_accepted_if_only_some_sets_were_measured(tmp_path: Path) -> None:
    results().write(tmp_path / STORED / FIGURES)
    part: dict[str, Figure] = dict(list(results().figures.items())[:3])
    latest = Results(about=results().about, figures=part)
    folder = RunFolder(tmp_path, tables)
    assert folder.judge(latest, "store it", partial=True) == 0
    assert folder.judge(latest, "store it", partial=False) == 1
    assert folder.judge(latest, "store it", partial=False, compares=False) == 0


def test_the_oracle_scores_a_leaf_by_the_share_of_the_gold_in_it() -> None:
    (quality_set,) = read_sets(MINIATURE)
    question = quality_set.questions[0]
    (gold,) = question.gold
    assert isinstance(gold, GoldSpan)
    document_id, start, end = gold.span
    texts = {document.document_id: str(document.body) for document in quality_set.documents()}
    middle = (start + end) // 2
    first, whole = texts[document_id][:middle], texts[document_id]
    oracle = Oracle([quality_set])
    assert oracle.score(question.text, f"Title > Section\n{whole}") == 1
    assert oracle.score(question.text, whole) == 1
    assert oracle.score(question.text, first) == pytest.approx((middle - start) / (end - start))
    assert oracle.score(question.text, "a text of no document") == 0
    assert oracle.score("another question", whole) == 0
    guesses = {Oracle([quality_set], 1.0).score(question.text, whole) for _ in range(2)}
    assert len(guesses) == 1
    assert 0 < guesses.pop() < 1
