"""`python -m benchmarks.load COMMAND`: load tests, described in README.md in this folder."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from benchmarks.load import body
from benchmarks.load.figures import Figures
from benchmarks.load.generator import Target, run
from benchmarks.load.work import Work, tenant_id
from hrag.client import Client
from hrag.client.targets import INDEXER_ADDRESS, RETRIEVER_ADDRESS
from hrag.types import IngestResult, SearchMode


def main() -> None:
    """Runs the command that the command line names."""
    options = parser().parse_args()
    options.command(options)


def fill(options: argparse.Namespace) -> None:
    """Stores the documents of all tenants."""
    work = _work(options)
    with Client(options.indexer, options.retriever) as client:
        for number in range(work.tenants):
            documents = (work.document(index) for index in range(work.documents))
            for result in client.ingest_many(tenant_id(number), documents):
                if not isinstance(result, IngestResult):
                    raise result
    print(f"{work.tenants:,} tenants with {work.documents:,} documents each are stored")


def load(options: argparse.Namespace) -> None:
    """Runs the load and prints its figures."""
    work = _work(options)
    target = Target(options.indexer, options.retriever, options.timeout_s, options.connections)
    figures = run(work, target, options.processes)
    print(f"load of {work.rate:g} calls/s for {work.duration_s:g} s")
    for line in _report(figures, work):
        print(line)


def write_body(options: argparse.Namespace) -> None:
    """Writes the request body that h2load sends."""
    options.file.write_bytes(body.framed(body.search(_work(options))))
    print(f"{options.file}: {options.file.stat().st_size:,} bytes")


def _report(figures: Figures, work: Work) -> Iterator[str]:
    if 0 < work.write_share < 1:
        for name, writes in (("searches", False), ("writes", True)):
            yield f"-- {name}"
            yield from figures.of_kind(writes=writes).lines(work.duration_s)
    else:
        yield from figures.lines(work.duration_s)


def _work(options: argparse.Namespace) -> Work:
    names = set(Work.__dataclass_fields__)
    return Work(**{name: value for name, value in vars(options).items() if name in names})


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the whole command line."""
    root = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    commands = root.add_subparsers(required=True)
    filling = commands.add_parser("fill", help=fill.__doc__)
    loading = commands.add_parser("run", help=load.__doc__)
    writing = commands.add_parser("body", help=write_body.__doc__)
    for subparser, command in ((filling, fill), (loading, load), (writing, write_body)):
        subparser.set_defaults(command=command, rate=1.0, duration_s=1.0)
        subparser.add_argument("--tenants", type=_count, default=10)
        subparser.add_argument(
            "--documents", type=_count, default=100, help="documents of each tenant"
        )
        subparser.add_argument("--words", type=_count, default=400, help="words of each document")
        subparser.add_argument("--seed", type=int, default=1)
    for subparser in (filling, loading):
        subparser.add_argument("--indexer", default=INDEXER_ADDRESS)
        subparser.add_argument("--retriever", default=RETRIEVER_ADDRESS)
    for subparser in (loading, writing):
        subparser.add_argument(
            "--queries", type=_count, default=1000, help="number of different query texts"
        )
        subparser.add_argument("--mode", type=SearchMode, default=SearchMode.SMALL_TO_BIG)
        subparser.add_argument("--limit", type=_count, default=5)
    loading.add_argument("--rate", type=_positive, required=True, help="calls a second")
    loading.add_argument("--duration-s", type=_positive, default=30.0)
    loading.add_argument(
        "--write-share", type=_share, default=0.0, help="share of writes among the calls, 0 to 1"
    )
    loading.add_argument("--timeout-s", type=_positive, default=5.0, help="timeout of each call")
    loading.add_argument(
        "--connections", type=_count, default=4, help="connections of each process"
    )
    loading.add_argument("--processes", type=_count, default=1, help="processes of the generator")
    writing.add_argument("file", type=Path)
    return root


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: must be over 0 and finite")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text}: must be 0 to 1")
    return value


if __name__ == "__main__":
    main()
