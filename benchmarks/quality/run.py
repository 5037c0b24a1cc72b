"""Measures the development sets on running services, and turns the results into figures."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from statistics import fmean

from benchmarks.figures import Better, Figure
from benchmarks.quality import reports
from benchmarks.quality.sets import QualitySet
from benchmarks.quality.targets import BY_DOCUMENTS, BY_SECTIONS, TARGETS, two_tier_target
from hrag.client import Client
from hrag.errors import CollectionExists, HragError
from hrag.evaluation.journal import Journal
from hrag.evaluation.retrieval_metrics import MRR, NDCG, RECALL, at_budget
from hrag.evaluation.retrieved import RetrievalResult
from hrag.evaluation.searches import DEFAULT_BUDGETS, Outcome, SearchTarget, search_all
from hrag.evaluation.summary import RetrievalFigures, SystemFigures, summarise
from hrag.evaluation.systems import System, parse_systems
from hrag.types import Retrieval, SearchMode, SettingsRequest, SummaryUnit

TENANT = "quality"
SEED = 0
MODES = (
    SearchMode.CONTEXT,
    SearchMode.STANDARD,
    SearchMode.AUTO_MERGE,
    SearchMode.SMALL_TO_BIG,
)
# The other modes, with the default retrieval. SUMMARY_FIRST chooses sections or documents first.
OTHER_MODES = (f"{SearchMode.SENTENCE_WINDOW}", BY_SECTIONS, BY_DOCUMENTS)
# A system is a mode with a retrieval. The first systems have the default retrieval, and only those
# of MODES have targets. The next systems have dense retrieval alone, and the last have lexical
# retrieval alone.
SYSTEMS = ",".join(
    (
        *MODES,
        *OTHER_MODES,
        *(f"{mode}:{source}" for source in ("dense", "lexical") for mode in MODES),
    )
)
# The reports are long and show what two tiers are worth, so they are not asked in every system.
REPORT_SYSTEMS = (
    SearchMode.CONTEXT.value,
    SearchMode.STANDARD.value,
    SearchMode.SMALL_TO_BIG.value,
    BY_SECTIONS,
    BY_DOCUMENTS,
)
# The indexer writes the summaries of all documents within this time, or the run ends.
_SUMMARIES_S = 600.0
# The name of the figure that says which share of the leaves was eligible.
ELIGIBLE = "eligible_leaves"

Say = Callable[[str], None]


class CallsFailed(Exception):
    """Calls failed, so the figures would be wrong. The message contains the first errors."""


def ingest(client: Client, sets: Iterable[QualitySet], say: Say) -> None:
    """Stores the documents of each set in the collection of its corpus, with summaries of sections.

    Raises the error of a document that cannot be stored, and CallsFailed if summaries are missing
    for too long.
    """
    settings = SettingsRequest(summaries=SummaryUnit.SECTION)
    for quality_set in {quality_set.collection: quality_set for quality_set in sets}.values():
        with suppress(CollectionExists):
            client.create_collection(TENANT, quality_set.collection, settings)
        tokens = 0
        for outcome in client.ingest_many(
            TENANT, quality_set.documents(), collection=quality_set.collection
        ):
            if isinstance(outcome, HragError):
                raise outcome
            tokens += outcome.token_count
        _wait_for_summaries(client, quality_set.collection)
        say(f"{quality_set.collection}: {tokens:,} tokens stored")


def _wait_for_summaries(client: Client, collection: str) -> None:
    end = time.monotonic() + _SUMMARIES_S
    while missing := client.index_status(TENANT, collection=collection).unsummarised_documents:
        if time.monotonic() > end:
            raise CallsFailed(
                f"{missing} documents of {collection} have no summary after {_SUMMARIES_S:.0f} s"
            )
        time.sleep(0.1)


def measure(client: Client, quality_set: QualitySet, systems: Sequence[System]) -> RetrievalFigures:
    """Asks every question in every system and returns the figures.

    Raises CallsFailed if a search fails, because the figures would count it as a miss.
    """
    return summary(quality_set, systems, search(client, quality_set, systems))


def search(
    client: Client, quality_set: QualitySet, systems: Sequence[System]
) -> dict[str, list[Outcome]]:
    """Asks every question in every system and returns the outcomes by the system's name."""
    searched = _target(quality_set)
    return search_all(client, quality_set.questions, systems, searched, Journal(), lambda *_: None)


def _target(quality_set: QualitySet) -> SearchTarget:
    return SearchTarget(TENANT, quality_set.collection, DEFAULT_BUDGETS)


def summary(
    quality_set: QualitySet, systems: Sequence[System], outcomes: Mapping[str, Sequence[Outcome]]
) -> RetrievalFigures:
    """Returns the figures of the outcomes of `search`.

    Raises CallsFailed if a search failed, because the figures would count it as a miss.
    """
    measured = summarise(
        quality_set.questions,
        systems,
        outcomes,
        _target(quality_set),
        baseline=systems[-1].name,
        seed=SEED,
    )
    failures = [failure for system in measured.systems for failure in system.failures]
    if failures:
        messages = "; ".join(f"{failure.subject}: {failure.message}" for failure in failures[:3])
        raise CallsFailed(f"{len(failures)} searches of {quality_set.name} failed: {messages}")
    return measured


def eligible_shares(
    systems: Sequence[System], outcomes: Mapping[str, Sequence[Outcome]], leaf_count: int
) -> dict[str, float]:
    """Returns the share of the collection's leaves that were eligible, by the system's name.

    It is the mean over the questions. Only SUMMARY_FIRST makes some leaves eligible, so other
    systems are left out.
    """
    return {
        system.name: fmean(
            outcome.eligible_leaves
            for outcome in outcomes[system.name]
            if isinstance(outcome, RetrievalResult)
        )
        / leaf_count
        for system in systems
        if system.mode is SearchMode.SUMMARY_FIRST
    }


def figures(
    quality_set: QualitySet,
    measured: RetrievalFigures,
    command: str,
    eligible: Mapping[str, float] | None = None,
) -> dict[str, Figure]:
    """Returns the figures of a set by key: recall at each budget, MRR, nDCG@10, latency.

    They have no noise, because the questions are the same in each run. `eligible` contains the
    shares of eligible leaves, which are figures of their systems, too.
    """
    sizes = {
        "questions": len(quality_set.questions),
        "documents": sum(1 for _ in quality_set.documents()),
    }
    set_figures: dict[str, Figure] = {}
    by_name = {system.name: system for system in measured.systems}
    small_to_big = by_name.get(SearchMode.SMALL_TO_BIG.value)

    def add(
        system: SystemFigures, name: str, value: float, unit: str, better: Better | None
    ) -> None:
        budget = int(name.rpartition("@")[2]) if name.startswith(RECALL) else 0
        target = TARGETS.get((quality_set.name, system.name, budget))
        if target is None and budget and small_to_big:
            found = small_to_big.estimates[name].mean
            target = two_tier_target(quality_set.name, system.name, found)
        set_figures[f"quality.{quality_set.name}.{_key(system.name)}.{_key(name)}"] = Figure(
            what=f"{quality_set.name}, {system.name}: {name}",
            value=value,
            unit=unit,
            better=better,
            target=target,
            noise=None,
            seed=SEED,
            sizes=sizes,
            command=command,
            full=False,
            met=None if target is None else value >= target,
        )

    for system in measured.systems:
        for name in (*(at_budget(RECALL, budget) for budget in measured.budgets), MRR, NDCG):
            add(system, name, system.estimates[name].mean, "share", "higher")
        add(system, "latency_p50", system.latency_p50_us / 1000, "ms", None)
        if eligible and system.name in eligible:
            add(system, ELIGIBLE, eligible[system.name], "share", None)
    return set_figures


def _key(name: str) -> str:
    return name.replace("@", "_").replace(":", "_").replace("=", "_")


def systems_of(text: str) -> tuple[System, ...]:
    """Returns the systems in a list that is separated by commas, as in `hrag eval --compare`."""
    return parse_systems(text)


def systems_for(quality_set: QualitySet, compared: str) -> tuple[System, ...]:
    """Returns the systems in which a set is measured: of SYSTEMS, the reports have a few only."""
    if compared == SYSTEMS and quality_set.name == reports.NAME:
        return systems_of(",".join(REPORT_SYSTEMS))
    return systems_of(compared)


def below_dense(measured: RetrievalFigures) -> list[str]:
    """Returns a line for each recall that is lower with default than with dense retrieval.

    The compared recalls have the same mode and the same token budget.
    """
    by_name = {system.name: system for system in measured.systems}
    lines = []
    for system in measured.systems:
        dense = by_name.get(f"{system.name}:{Retrieval.DENSE}")
        for budget in measured.budgets if dense else ():
            name = at_budget(RECALL, budget)
            assert dense is not None
            default, dense_value = system.estimates[name].mean, dense.estimates[name].mean
            if default < dense_value:
                lines.append(
                    f"{system.name} {name}: {100 * default:.1f} < {100 * dense_value:.1f} dense"
                )
    return lines
