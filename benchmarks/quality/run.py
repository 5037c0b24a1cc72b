"""Measures the sets on running services, and makes figures of what was found."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from benchmarks.figures import Better, Figure
from benchmarks.quality.sets import QualitySet
from benchmarks.quality.targets import TARGETS
from hrag.client import Client
from hrag.errors import CollectionExists, HragError
from hrag.evaluation.journal import Journal
from hrag.evaluation.retrieval_metrics import MRR, NDCG, RECALL, at_budget
from hrag.evaluation.searches import DEFAULT_BUDGETS, Searched, search_all
from hrag.evaluation.summary import RetrievalFigures, SystemFigures, summarise
from hrag.evaluation.systems import System, parse_systems
from hrag.types import Retrieval, SearchMode

TENANT = "quality"
SEED = 0
MODES = (
    SearchMode.CONTEXT,
    SearchMode.STANDARD,
    SearchMode.AUTO_MERGE,
    SearchMode.SMALL_TO_BIG,
)
# The default retrieval, which has the targets, then each source alone.
SYSTEMS = ",".join(
    f"{mode}{source}" for source in ("", ":dense", ":lexical") for mode in MODES
)  # fmt: skip

Say = Callable[[str], None]


class CallsFailed(Exception):
    """Calls failed, so that the figures would be wrong; the message has the first errors."""


def ingest(client: Client, sets: Iterable[QualitySet], say: Say) -> None:
    """Stores the documents of every set in a collection of their own.

    Raises the error of a document that cannot be stored.
    """
    for each in {each.collection: each for each in sets}.values():
        with suppress(CollectionExists):
            client.create_collection(TENANT, each.collection)
        tokens = 0
        for outcome in client.ingest_many(TENANT, each.documents(), collection=each.collection):
            if isinstance(outcome, HragError):
                raise outcome
            tokens += outcome.token_count
        say(f"{each.collection}: {tokens:,} tokens stored")


def measure(client: Client, one: QualitySet, systems: Sequence[System]) -> RetrievalFigures:
    """Asks every question in every system. Raises CallsFailed, since a lost search is a miss."""
    where = Searched(TENANT, one.collection, DEFAULT_BUDGETS)
    outcomes = search_all(client, one.questions, systems, where, Journal(), lambda *_: None)
    measured = summarise(
        one.questions, systems, outcomes, where, baseline=systems[-1].name, seed=SEED
    )
    failures = [failure for each in measured.systems for failure in each.failures]
    if failures:
        messages = "; ".join(f"{each.subject}: {each.message}" for each in failures[:3])
        raise CallsFailed(f"{len(failures)} searches of {one.name} failed: {messages}")
    return measured


def figures(one: QualitySet, measured: RetrievalFigures, command: str) -> dict[str, Figure]:
    """Returns the figures of a set by key: recall at each budget, MRR, nDCG@10, latency.

    They have no noise: the questions are the same in each run.
    """
    sizes = {"questions": len(one.questions), "documents": sum(1 for _ in one.documents())}
    found: dict[str, Figure] = {}

    def add(
        system: SystemFigures, name: str, value: float, unit: str, better: Better | None
    ) -> None:
        budget = int(name.rpartition("@")[2]) if name.startswith(RECALL) else 0
        target = TARGETS.get((one.name, system.name, budget))
        found[f"quality.{one.name}.{_key(system.name)}.{_key(name)}"] = Figure(
            what=f"{one.name}, {system.name}: {name}",
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
        for name in (*(at_budget(RECALL, each) for each in measured.budgets), MRR, NDCG):
            add(system, name, system.estimates[name].mean, "share", "higher")
        add(system, "latency_p50", system.latency_p50_us / 1000, "ms", None)
    return found


def _key(name: str) -> str:
    return name.replace("@", "_").replace(":", "_").replace("=", "_")


def systems_of(text: str) -> tuple[System, ...]:
    """Returns the systems of a list with commas."""
    return parse_systems(text)


def below_dense(measured: RetrievalFigures) -> list[str]:
    """Returns where a mode's default retrieval finds less than its dense one, in words."""
    by_name = {each.name: each for each in measured.systems}
    found = []
    for each in measured.systems:
        dense = by_name.get(f"{each.name}:{Retrieval.DENSE}")
        for budget in measured.budgets if dense else ():
            name = at_budget(RECALL, budget)
            assert dense is not None
            own, other = each.estimates[name].mean, dense.estimates[name].mean
            if own < other:
                found.append(f"{each.name} {name}: {100 * own:.1f} < {100 * other:.1f} dense")
    return found
