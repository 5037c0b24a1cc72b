"""`python -m benchmarks.table [FIGURES] [--write]`: prints a run's figures as Markdown tables.

The requirements of the design come first, then the plots, then the other figures with a target,
and last the figures without a target. `--write` writes all tables to TABLES.md, a generated file in
the folder of the figures. It also writes the headline figures between the two marks in README.md.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks.figures import STORED, BadResults, Figure, Results, number

README = Path(__file__).with_name("README.md")
TABLES = "TABLES.md"
_BEGIN = "<!-- `python -m benchmarks.table --write` writes from here -->\n"
_END = "<!-- to here -->\n"
_P50, _P99 = ".p50", ".p99"
_WRITTEN_BY = """\
Written by `python -m benchmarks.table --write`. [How each figure is measured](../../METHOD.md).
"""
_LIBRARIES = ("numpy", "hnswlib", "lmdb", "grpcio", "protobuf", "tiktoken")


_MILLION_P50 = "growth_full.384.1000000.grpc.limit_5_k_50.small_to_big.p50"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement, with the `fnmatch` patterns of the keys of its figures."""

    description: str
    keys: Sequence[str]


REQUIREMENTS = (
    Requirement(
        "small-to-big over standard search (climb, group, fetch), same server, p99, k = 100",
        (
            "growth_full.384.1000000.*.p99_difference",
            "climb.grpc.p99_difference",
            "climb.in_process.p99_difference",
        ),
    ),
    Requirement("the same at limit 100", ("climb.limit_100.p99_difference",)),
    Requirement(
        "AUTO_MERGE to SMALL_TO_BIG, same limit, 5 to 100, long documents",
        ("auto_merge.*.ratio_to_small_to_big",),
    ),
    Requirement(
        "a filter never asked before, that passes 10 % or 50 % by one value, to no filter",
        ("filters.one_value_*.ratio_to_unfiltered",),
    ),
    Requirement("Cython kernels over their Python twins", ("kernels.climb.*",)),
    Requirement(
        "Search over a bare grpcio handler that does only `knn_query`, ratio to baseline",
        ("baseline.*.ratio",),
    ),
    Requirement(
        "chunking a document, all four levels, to tiktoken alone", ("chunking.*.ratio_to_list",)
    ),
    Requirement(
        "ingest with embeddings given to raw `add_items`",
        tuple(
            f"ingest.{name}.ratio_to_add_items"
            for name in ("committed", "sealed", "stream", "stream_with_words")
        ),
    ),
    Requirement("disk to text and float32 vectors, segments aside", ("sizing.disk.*",)),
    Requirement("recall@10 against exact search, default settings", ("recall.*.default",)),
    Requirement(
        "latency from 10 k to 1 M leaves",
        ("growth_full.384.*.small_to_big", "growth.384.*.small_to_big"),
    ),
)
HEADLINES = (
    Requirement(
        "small-to-big minus standard search, 100,000 leaves, k = 100: difference of p99s",
        ("climb.in_process.p99_difference",),
    ),
    Requirement("the same through gRPC", ("climb.grpc.p99_difference",)),
    Requirement(
        "the climb kernel, speedup over its Python twin, k = 100",
        ("kernels.climb.100.ratio_to_twin",),
    ),
    Requirement(
        "Search, ratio to baseline (a bare handler that only calls `knn_query`), one caller, p50",
        ("baseline.one_caller.ratio",),
    ),
    Requirement(
        "the same, calls a second of 16 callers, one process", ("baseline.saturated.1.ratio",)
    ),
    Requirement("Search through gRPC, 1,000,000 leaves, p50", (_MILLION_P50,)),
    Requirement(
        "the same, ratio to 10,000 leaves",
        ("growth_full.384.grpc.small_to_big",),
    ),
    Requirement("recall@10 against exact search, 50,000 x 384", ("recall.384.default",)),
    Requirement(
        "ingest of a stream, vectors given, sealed, ratio to hnswlib's `add_items`",
        ("ingest.stream.ratio_to_add_items",),
    ),
    Requirement(
        "chunking 10 MB of English at four levels, ratio to tiktoken alone",
        ("chunking.english.10000000.ratio_to_list",),
    ),
    Requirement(
        "LMDB's file, ratio to text and vectors, 30 leaves a document, 384 dimensions",
        ("sizing.disk.384.leaves_30",),
    ),
    Requirement(
        "a filter of 1 % by one value, first use, ratio to no filter, p50",
        ("filters.value_1.ratio_to_unfiltered",),
    ),
    Requirement(
        "SUMMARY_FIRST, ratio to SMALL_TO_BIG, p50", ("summaries.sections.ratio_to_small_to_big",)
    ),
)
_KILLS = (
    "acknowledged documents lost over 200 kill -9 at random points",
    "all acknowledged documents, after each of 210 kills",
    "<= 0",
    "0, else the suite fails",
    "met",
    "`make test-slow`",
)


def head(*cells: str) -> Iterator[str]:
    """Yields the two lines that begin a table."""
    yield row(*cells)
    yield row(*["---"] * len(cells))


def row(*cells: str) -> str:
    """Returns one line of a table."""
    return f"| {' | '.join(cells)} |"


def tables(results: Results) -> Iterator[str]:
    """Yields the lines of TABLES.md: all figures of a run.

    The lines refer to plots in the folder of TABLES.md.
    """
    yield "# Figures of the stored run\n"
    yield _WRITTEN_BY
    yield _where(results)
    yield "\n## What the design asks for\n"
    yield from _required(results)
    required = {key for requirement in REQUIREMENTS for key in _keys_of(results, requirement)}
    others = {key: figure for key, figure in results.figures.items() if key not in required}
    yield "\n## Plots\n"
    yield from (f"![{plot.title}]({name}.svg)" for name, plot in results.plots.items())
    yield "\n## Other figures with a target\n"
    yield from _with_a_target(others)
    yield "\n## Without a target\n"
    yield from _without_a_target(others)
    yield "\n## How long they take\n"
    yield from _durations(results)


def _where(results: Results) -> str:
    about, versions = results.about, results.about["versions"]
    machine = about["machine"]
    run = "`make bench-full`" if about["mode"] == "full" else "`make bench`"
    libraries = ", ".join(f"{name} {versions[name]}" for name in _LIBRARIES)
    return (
        f"{run} on {about['date'][:10]}, {sum(results.took_s.values()) / 60:.0f} minutes, at commit"
        f" {about['commit']}: {machine['cores']} cores ({machine['cpu']}),"
        f" {machine['memory_gib']} GiB, Linux {machine['kernel']}, load average before"
        f" {machine['load_average']}. Python {versions['python']}, {libraries}."
    )


def _required(results: Results) -> Iterator[str]:
    yield from head("requirement", "measured", "target", "figure", "verdict", "command")
    for requirement in REQUIREMENTS:
        keys = _keys_of(results, requirement)
        if not keys:
            yield row(
                requirement.description, "not measured in this run", "", "", "", "`make bench-full`"
            )
        for position, key in enumerate(keys):
            figure = results.figures[key]
            judged = (figure.limit, str(figure), _verdict(figure), f"`{figure.command}`")
            yield row("" if position else requirement.description, figure.what, *judged)
    yield row(*_KILLS)


def _keys_of(results: Results, requirement: Requirement) -> list[str]:
    return [
        key
        for key in results.figures
        if any(fnmatchcase(key, pattern) for pattern in requirement.keys)
    ]


def _with_a_target(figures: dict[str, Figure]) -> Iterator[str]:
    yield from head("what", "seed", "target", "figure", "verdict")
    for figure in figures.values():
        if figure.target is not None:
            yield row(figure.what, _seed(figure), figure.limit, str(figure), _verdict(figure))


def _without_a_target(figures: dict[str, Figure]) -> Iterator[str]:
    """Yields the table of the figures without a target. A p50 and its p99 share a row."""
    yield from head("what", "seed", "figure")
    for key, figure in figures.items():
        p50 = figures.get(key.removesuffix(_P99) + _P50) if key.endswith(_P99) else None
        p99 = figures.get(key.removesuffix(_P50) + _P99) if key.endswith(_P50) else None
        if p99:
            both = f"{number(figure.value)}, {number(p99.value)} {figure.unit}"
            yield row(f"{figure.what}, p99", _seed(figure), both)
        elif figure.target is None and not p50:
            yield row(figure.what, _seed(figure), str(figure))


def _durations(results: Results) -> Iterator[str]:
    files: dict[str, float] = {}
    for test, took_s in results.took_s.items():
        file = test.partition("::")[0]
        files[file] = files.get(file, 0) + took_s
    yield from head("file", "took")
    for file, took_s in files.items():
        yield row(f"`{file}`", f"{took_s:.0f} s")


def _seed(figure: Figure) -> str:
    return "none" if figure.seed is None else str(figure.seed)


def _verdict(figure: Figure) -> str:
    return {True: "met", False: "**missed**", None: "reported"}[figure.met]


def headlines(results: Results) -> Iterator[str]:
    """Yields the lines between the marks in README.md: the most important figures of a run."""
    yield _where(results)
    yield ""
    yield from head("what", "target", "figure", "verdict")
    for requirement in HEADLINES:
        for key in _keys_of(results, requirement):
            figure = results.figures[key]
            yield row(requirement.description, figure.limit, str(figure), _verdict(figure))


def written(text: str, results: Results) -> str:
    """Returns the text with the headlines of a run between its marks.

    Raises ValueError unless each mark occurs once.
    """
    if text.count(_BEGIN) != 1 or text.count(_END) != 1:
        raise ValueError(f"{_BEGIN!r} and {_END!r} must each occur once")
    before, _, remainder = text.partition(_BEGIN)
    after = remainder.partition(_END)[2]
    return "".join([before, _BEGIN, "\n", "\n".join(headlines(results)), "\n\n", _END, after])


def write(results: Results, tables_path: Path, readme: Path = README) -> None:
    """Writes all tables to `tables_path` and the headlines into `readme`."""
    text = written(readme.read_text("utf-8"), results)
    tables_path.write_text("\n".join(tables(results)) + "\n", "utf-8")
    readme.write_text(text, "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code: 2 if the results cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table", description=__doc__)
    parser.add_argument("figures", type=Path, nargs="?", default=STORED)
    parser.add_argument("--write", action="store_true", help="write to TABLES.md and README.md")
    options = parser.parse_args(arguments)
    try:
        results = Results.read(options.figures)
    except BadResults as error:
        print(error, file=sys.stderr)
        return 2
    if options.write:
        write(results, options.figures.with_name(TABLES))
    else:
        print("\n".join(tables(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
