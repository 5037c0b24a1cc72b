"""The figures as Markdown tables: the measures, the recall of printed sets, and what was missed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.figures import Figure, Results, number
from benchmarks.table import head, row
from hrag.evaluation.searches import DEFAULT_BUDGETS

_BUDGETS = " / ".join(f"{budget:,}" for budget in DEFAULT_BUDGETS)
_ABOUT = """\
# What is lost if a document is printed and read back

Written by `python -m benchmarks.documents --store`; [how it is measured](../../../METHOD.md).
Figures that miss their target are **bold**. Intervals contain 95 % of the resamples of documents.
"""
_SETS = f"""\

## Recall of printed development sets

Recall of gold characters with the mode CONTEXT, in %, when the passages fill {_BUDGETS} tokens; and
how many points lower it is in prints than in texts, with its interval over questions.
"""
_MISSES = """\

## What was missed

Some examples for each document and measure.
"""
_SET_PREFIX = "documents.sets."
_MAX_EXAMPLE_CHARS = 70


def tables(results: Results) -> Iterator[str]:
    """Yields the lines of TABLES.md."""
    about = results.about
    yield _ABOUT
    yield (
        f"At commit {about['commit']} on {about['date'][:10]}: {about['documents']} documents and "
        f"{about['tables']} tables on {about['pages']:,} pages. "
        f"Python {about['versions']['python']}, WeasyPrint {about['versions']['weasyprint']}.\n"
    )
    yield from _figures(results)
    if about["sets"]:
        yield _SETS
        yield from _sets(results)
    if about["sets_left_out"]:
        yield f"\nNot printed, because no font has their characters: {about['sets_left_out']}."
    yield _MISSES
    yield from _misses(about["misses"])


def _figures(results: Results) -> Iterator[str]:
    yield from head("what", "target", "figure", "interval", "verdict")
    for key, figure in results.figures.items():
        if not key.startswith(_SET_PREFIX):
            interval = _interval(results.about["intervals"].get(key))
            yield row(figure.what, figure.limit, _value(figure), interval, _verdict(figure))


def _sets(results: Results) -> Iterator[str]:
    yield from head("set", "kind", "recall", "points lost", "intervals", "words lost")
    figures, intervals = results.figures, results.about["intervals"]
    for name in results.about["sets"]:
        yield row(name, "text", _percents(figures, name, "text", "recall"), "", "", "")
        for kind in ("printed", "recognised"):
            prefix = f"{_SET_PREFIX}{name}.{kind}"
            if f"{prefix}.words_lost" in figures:
                ranges = (intervals[f"{prefix}.loss_{budget}"] for budget in DEFAULT_BUDGETS)
                yield row(
                    "",
                    kind,
                    _percents(figures, name, kind, "recall"),
                    _percents(figures, name, kind, "loss"),
                    " / ".join(f"{100 * low:.1f} to {100 * high:.1f}" for low, high in ranges),
                    f"{100 * figures[f'{prefix}.words_lost'].value:.2f} %",
                )


def _percents(figures: Mapping[str, Figure], name: str, kind: str, metric: str) -> str:
    chosen = (
        figures[f"{_SET_PREFIX}{name}.{kind}.{metric}_{budget}"] for budget in DEFAULT_BUDGETS
    )
    return " / ".join(_percent(figure) for figure in chosen)


def _percent(figure: Figure) -> str:
    text = f"{100 * figure.value:.1f}"
    return f"**{text}**" if figure.met is False else text


def _misses(misses: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from head("document", "layout", "measure", "prints", "examples")
    for miss in misses:
        examples = "; ".join(_short(example) for example in miss["examples"])
        outlines = ", ".join(miss["outlines"])
        yield row(f"`{miss['document']}`", miss["layout"], miss["measure"], outlines, examples)


def _short(example: str) -> str:
    shown = example.replace("|", "\\|").replace("\n", " ")
    return shown if len(shown) <= _MAX_EXAMPLE_CHARS else f"{shown[:_MAX_EXAMPLE_CHARS]}…"


def _value(figure: Figure) -> str:
    text = f"{number(figure.value)}{'' if figure.unit == 'share' else f' {figure.unit}'}"
    return f"**{text}**" if figure.met is False else text


def _interval(ends: Sequence[float] | None) -> str:
    return "" if ends is None else f"{number(ends[0])} to {number(ends[1])}"


def _verdict(figure: Figure) -> str:
    return {True: "met", False: "**missed**", None: "reported"}[figure.met]
