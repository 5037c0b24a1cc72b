"""What became of the calls of a load, and what that says.

Latency counts from the moment a call was due, not from when it was sent. A generator that
falls behind, or that waited for a server that stood still, would otherwise leave out just
the calls that suffered ("coordinated omission"). Every call is kept, a few hundred bytes
each, so percentiles are exact and need no histogram.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

OK = "OK"
UNSENT = "UNSENT"  # More were under way than the generator may have.
PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99, 100.0)
LATE_MS = 10.0  # A generator that is later than this has measured itself.


@dataclass(frozen=True, slots=True)
class Outcome:
    """One call: seconds from the beginning of the load, and how it ended."""

    due_s: float
    sent_s: float
    ended_s: float
    code: str
    writes: bool = False


@dataclass(frozen=True)
class Figures:
    """All calls of a load."""

    outcomes: Sequence[Outcome]

    def of(self, *, writes: bool) -> "Figures":
        """Only the writes, or only the searches."""
        return Figures([each for each in self.outcomes if each.writes == writes])

    @property
    def codes(self) -> Counter[str]:
        """How many calls ended with which status."""
        return Counter(each.code for each in self.outcomes)

    @property
    def took_ms(self) -> NDArray[np.float64]:
        """Of the calls that succeeded, from due to ended."""
        return np.array([(x.ended_s - x.due_s) * 1e3 for x in self.outcomes if x.code == OK])

    @property
    def late_ms(self) -> NDArray[np.float64]:
        """How much later than due each call was sent: the generator's own fault."""
        return np.array([(x.sent_s - x.due_s) * 1e3 for x in self.outcomes])

    def goodput(self, start_s: float, end_s: float) -> float:
        """Calls a second that ended well between two moments."""
        ended = sum(start_s <= x.ended_s < end_s for x in self.outcomes if x.code == OK)
        return ended / (end_s - start_s)

    def lines(self, duration_s: float) -> Iterator[str]:
        """A report for people."""
        if not self.outcomes:
            yield "no calls"
            return
        codes = ", ".join(f"{code} {count:,}" for code, count in self.codes.most_common())
        yield f"{len(self.outcomes):,} calls: {codes}"
        yield f"goodput {self.goodput(0, duration_s):,.1f} calls/s in {duration_s:g} s"
        if self.codes[OK]:
            yield f"latency from due to answer: {_ladder(self.took_ms)}"
        late = float(np.percentile(self.late_ms, 99))
        yield f"sent late: p99 {late:.2f} ms"
        if late > LATE_MS:
            yield "THE GENERATOR WAS TOO SLOW: use more --processes, another machine or less --rate"


def joined(parts: Iterable[Figures]) -> Figures:
    """Those of several processes as one, in the order in which calls were due."""
    outcomes = [each for part in parts for each in part.outcomes]
    return Figures(sorted(outcomes, key=lambda each: each.due_s))


def _ladder(took_ms: NDArray[np.float64]) -> str:
    values = np.percentile(took_ms, PERCENTILES, method="higher")
    named = zip(PERCENTILES, values, strict=True)
    return ", ".join(f"p{percent:g} {value:.2f}" for percent, value in named) + " ms"
