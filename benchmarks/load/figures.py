"""The outcomes of a load's calls, with latency and goodput.

Latency counts from the time a call was due, not from when it was sent. Otherwise a generator
that falls behind, or waits for a stalled server, leaves out the very calls that suffered
("coordinated omission", Gil Tene). Every call is kept, at a few hundred bytes each, so
percentiles are exact.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

OK = "OK"
UNSENT = "UNSENT"  # Not sent: the generator had its maximum of calls in flight.
PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99, 100.0)
LATE_MS = 10.0  # Beyond this the latencies are the generator's own.


@dataclass(frozen=True, slots=True)
class Outcome:
    """One call: its times in seconds since the start of the load, and its status."""

    due_s: float
    sent_s: float
    ended_s: float
    code: str
    writes: bool = False


@dataclass(frozen=True)
class Figures:
    """The outcomes of all calls of a load."""

    outcomes: Sequence[Outcome]

    def of(self, *, writes: bool) -> "Figures":
        """Returns only the writes, or only the searches."""
        return Figures([each for each in self.outcomes if each.writes == writes])

    @property
    def codes(self) -> Counter[str]:
        """Returns the number of calls by status."""
        return Counter(each.code for each in self.outcomes)

    @property
    def took_ms(self) -> NDArray[np.float64]:
        """Returns the latencies of the successful calls, from due to end: `float64[calls]`."""
        return np.array([(x.ended_s - x.due_s) * 1e3 for x in self.outcomes if x.code == OK])

    @property
    def late_ms(self) -> NDArray[np.float64]:
        """Returns how much later than due the generator sent each call: `float64[calls]`."""
        return np.array([(x.sent_s - x.due_s) * 1e3 for x in self.outcomes])

    def goodput(self, start_s: float, end_s: float) -> float:
        """Returns the calls a second that succeeded between two times."""
        ended = sum(start_s <= x.ended_s < end_s for x in self.outcomes if x.code == OK)
        return ended / (end_s - start_s)

    def lines(self, duration_s: float) -> Iterator[str]:
        """Returns the lines of a readable report."""
        if not self.outcomes:
            yield "no calls"
            return
        codes = ", ".join(f"{code} {count:,}" for code, count in self.codes.most_common())
        yield f"{len(self.outcomes):,} calls: {codes}"
        yield f"goodput {self.goodput(0, duration_s):,.1f} calls/s in {duration_s:g} s"
        if self.codes[OK]:
            yield f"latency from due to end: {_ladder(self.took_ms)}"
        late = float(np.percentile(self.late_ms, 99))
        yield f"sent late: p99 {late:.2f} ms"
        if late > LATE_MS:
            yield "THE GENERATOR WAS TOO SLOW: use more --processes, another machine or less --rate"


def joined(parts: Iterable[Figures]) -> Figures:
    """Returns the outcomes of several processes, in the order in which calls were due."""
    outcomes = [each for part in parts for each in part.outcomes]
    return Figures(sorted(outcomes, key=lambda each: each.due_s))


def _ladder(took_ms: NDArray[np.float64]) -> str:
    values = np.percentile(took_ms, PERCENTILES, method="higher")
    named = zip(PERCENTILES, values, strict=True)
    return ", ".join(f"p{percent:g} {value:.2f}" for percent, value in named) + " ms"
