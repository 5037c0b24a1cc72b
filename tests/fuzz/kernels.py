"""Fuzzes the compiled kernels: `make fuzz SECONDS=60` runs this with sanitizers.

Each target runs in a process of its own, which a sanitizer ends at the first fault. As many run at
once as there are processors. The inputs follow from the seed and their number, so a fault can be
repeated:

    make fuzz TARGETS=graph SEED=7 ONLY=1234
"""

import argparse
import faulthandler
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hrag_fast
from tests.fuzz.damage import damaged
from tests.fuzz.kernel_targets import TARGETS, Target, with_extreme_number

# The most seconds for one input, also on a busy machine. Without sanitizers, it takes less than a
# millisecond.
MAX_INPUT_S = 60
_MAX_OUTPUT_CHARS = 6_000
_UNDAMAGED_SHARE = 0.02


def input_of(target: Target, name: str, seed: int, number: int) -> tuple[bytes, random.Random]:
    """Returns the input `number` of a target, and the source of its other random choices."""
    draw = random.Random(f"{seed} {name} {number}")
    seeds = target.seeds()
    data = draw.choice(seeds)
    if draw.random() >= _UNDAMAGED_SHARE:
        data = (
            damaged(data, draw, seeds) if draw.random() < 0.6 else with_extreme_number(data, draw)
        )
    return data, draw


def run_input(name: str, seed: int, number: int) -> None:
    """Gives one input to a target. Raises an error that the kernel does not document."""
    target = TARGETS[name]
    data, draw = input_of(target, name, seed, number)
    try:
        target.run(data, draw)
    except target.errors:
        return


def run_target(name: str, seed: int, seconds: float, progress: Path) -> None:
    """Gives inputs to a target for some seconds. Writes the number of each to `progress` first."""
    end_s = time.monotonic() + seconds
    number = 0
    with progress.open("r+b", buffering=0) as file:
        while time.monotonic() < end_s:
            file.seek(0)
            file.write(number.to_bytes(8, "little"))
            faulthandler.dump_traceback_later(MAX_INPUT_S, exit=True)
            run_input(name, seed, number)
            number += 1
    faulthandler.cancel_dump_traceback_later()


def fuzz(name: str, seed: int, seconds: float) -> str | None:
    """Runs a target in a new process. Returns a report if it fails, and None otherwise."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(8))
        file.flush()
        arguments = ["--run", name, "--seed", str(seed), "--seconds", str(seconds)]
        command = [sys.executable, "-m", "tests.fuzz.kernels", *arguments, "--progress", file.name]
        ended = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False
        )
        number = int.from_bytes(Path(file.name).read_bytes()[:8], "little")
    if not ended.returncode:
        _write(f"{name}: {number + 1:,} inputs in {seconds:g} s")
        return None
    return (
        f"{name}: input {number} fails with the exit status {ended.returncode}; repeat it with "
        f"`make fuzz TARGETS={name} SEED={seed} ONLY={number}`\n"
        f"{ended.stderr[-_MAX_OUTPUT_CHARS:]}"
    )


def _write(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def main() -> int:
    """Runs the targets that the command line names. Returns how many of them fail."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds for all targets")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--targets", default="", help=f"some of: {' '.join(TARGETS)}")
    parser.add_argument("--kernels", type=Path, default=None, help="the folder of the kernels")
    parser.add_argument("--only", type=int, default=None, help="the number of a single input")
    parser.add_argument("--run", default="", help=argparse.SUPPRESS)
    parser.add_argument("--progress", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = Path(hrag_fast.__file__).parent
    if options.kernels is not None and options.kernels.resolve() != folder.resolve():
        parser.error(f"Python imports the kernels in {folder}, not those in {options.kernels}")
    if options.run:
        run_target(options.run, options.seed, options.seconds, options.progress)
        return 0
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    names = options.targets.split() or [*TARGETS]
    if options.only is not None:
        run_input(names[0], seed, options.only)
        return 0
    _write(f"seed {seed}; the kernels are in {folder}")
    processors = min(len(os.sched_getaffinity(0)), len(names))
    seconds = options.seconds * processors / len(names)
    with ThreadPoolExecutor(processors) as pool:
        reports = list(pool.map(lambda name: fuzz(name, seed, seconds), names))
    failures = [report for report in reports if report is not None]
    _write(*failures)
    return len(failures)


if __name__ == "__main__":
    sys.exit(main())
