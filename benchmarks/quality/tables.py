"""The figures as Markdown tables: a row for each system, a column for each set."""

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.figures import Figure, Results
from benchmarks.quality.run import ELIGIBLE
from benchmarks.table import head, row
from hrag.evaluation.retrieval_metrics import MRR, NDCG, RECALL
from hrag.evaluation.searches import DEFAULT_BUDGETS

_BUDGETS = " / ".join(f"{budget:,}" for budget in DEFAULT_BUDGETS)
_ABOUT = f"""\
# What a search finds on the development sets

Written by `python -m benchmarks.quality --store`; [how it is measured](../../../METHOD.md).
Recall of gold characters in % when the passages fill {_BUDGETS} tokens in order, the last one
cut. A system is a mode with the default retrieval, or with `:dense` or `:lexical` alone.
SUMMARY_FIRST chooses sections or documents first, as its `summary_scope` says; the share of the
collection's leaves that were eligible, in %, is in parentheses. It should find at most a point less
than SMALL_TO_BIG if it chooses sections, and more on the reports. The reports, which
`benchmarks/quality/reports.py` generates, are asked in five systems.
Figures that miss their target are **bold**.
"""


def tables(results: Results) -> Iterator[str]:
    """Yields the lines of TABLES.md."""
    about = results.about
    yield _ABOUT
    yield (
        f"At commit {about['commit']} on {about['date'][:10]}, embedder {about['embedder']}, "
        f"Python {about['versions']['python']}.\n"
    )
    sets, systems = about["sets"], about["systems"]
    names = [f"{RECALL}_{budget}" for budget in DEFAULT_BUDGETS]
    yield from _table(results.figures, sets, systems, names, ELIGIBLE)
    yield f"\n## {MRR.upper()} and nDCG@10, %\n"
    yield from _table(results.figures, sets, systems, [MRR, NDCG.replace("@", "_")])
    yield "\n## Latency, p50 in ms, of a search for the largest budget, without embedding\n"
    yield from _table(results.figures, sets, systems, ["latency_p50"])


def _table(
    figures: Mapping[str, Figure],
    sets: Sequence[str],
    systems: Sequence[str],
    names: Sequence[str],
    aside: str = "",
) -> Iterator[str]:
    """Yields a table; where the figure `aside` exists, it stands in parentheses."""
    yield from head("", *sets)
    for system in systems:
        key = system.replace(":", "_").replace("=", "_")
        prefixes = (f"quality.{set_name}.{key}." for set_name in sets)
        yield row(system, *(_cell(figures, prefix, names, aside) for prefix in prefixes))


def _cell(figures: Mapping[str, Figure], prefix: str, names: Sequence[str], aside: str) -> str:
    known = [figures[key] for name in names if (key := prefix + name) in figures]
    if not known:
        return "none"
    share = figures.get(prefix + aside)
    return " ".join(map(_shown, known)) + (f" ({_shown(share)})" if share else "")


def _shown(figure: Figure) -> str:
    text = f"{100 * figure.value:.1f}" if figure.unit == "share" else f"{figure.value:.1f}"
    return f"**{text}**" if figure.met is False else text
