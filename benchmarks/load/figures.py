"""The outcomes of a load's calls, with latency and goodput.

Latency counts from the time at which a call was due, not from the time at which it was sent.
Otherwise a generator that is late, or that waits for a stalled server, would leave out exactly the
calls that suffered ("coordinated omission", Gil Tene). Percentiles are exact, because every call is
stored, in a few hundred bytes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

OK = "OK"
# The status of a call that was not sent because the maximum number of calls was in flight.
UNSENT = "UNSENT"
PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99, 100.0)
# A call is late by the time from when it was due to when it was sent. If the p99 of this time is
# higher, the report warns that the generator itself causes a part of the latency.
LATE_MS = 10.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one call: its times in seconds since the start of the load, and its status."""

    due_s: float
    sent_s: float
    ended_s: float
    code: str
    writes: bool = False


@dataclass(frozen=True)
class Figures:
    """The outcomes of all calls of a load."""

    outcomes: Sequence[Outcome]

    def of_kind(self, *, writes: bool) -> "Figures":
        """Returns the figures of the writes alone, or of the searches alone."""
        return Figures([outcome for outcome in self.outcomes if outcome.writes == writes])

    @property
    def codes(self) -> Counter[str]:
        """The number of calls by status."""
        return Counter(outcome.code for outcome in self.outcomes)

    @property
    def took_ms(self) -> NDArray[np.float64]:
        """The latencies of the successful calls, from due to end: `float64[calls]`."""
        return np.array(
            [(call.ended_s - call.due_s) * 1e3 for call in self.outcomes if call.code == OK]
        )

    @property
    def late_ms(self) -> NDArray[np.float64]:
        """The milliseconds from due to sent of each call: `float64[calls]`."""
        return np.array([(call.sent_s - call.due_s) * 1e3 for call in self.outcomes])

    def goodput(self, start_s: float, end_s: float) -> float:
        """Returns the successful calls per second that ended between `start_s` and `end_s`."""
        ended = sum(start_s <= call.ended_s < end_s for call in self.outcomes if call.code == OK)
        return ended / (end_s - start_s)

    def lines(self, duration_s: float) -> Iterator[str]:
        """Yields the lines of a readable report."""
        if not self.outcomes:
            yield "no calls"
            return
        codes = ", ".join(f"{code} {count:,}" for code, count in self.codes.most_common())
        yield f"{len(self.outcomes):,} calls: {codes}"
        yield f"goodput {self.goodput(0, duration_s):,.1f} calls/s in {duration_s:g} s"
        if self.codes[OK]:
            yield f"latency from due to end: {_percentiles_line(self.took_ms)}"
        late = float(np.percentile(self.late_ms, 99))
        yield f"sent late: p99 {late:.2f} ms"
        if late > LATE_MS:
            yield "THE GENERATOR WAS TOO SLOW: use more --processes, another machine or less --rate"


def joined(parts: Iterable[Figures]) -> Figures:
    """Returns the outcomes of several processes, in the order in which the calls were due."""
    outcomes = [outcome for part in parts for outcome in part.outcomes]
    return Figures(sorted(outcomes, key=lambda outcome: outcome.due_s))


def _percentiles_line(took_ms: NDArray[np.float64]) -> str:
    values = np.percentile(took_ms, PERCENTILES, method="higher")
    named = zip(PERCENTILES, values, strict=True)
    return ", ".join(f"p{percent:g} {value:.2f}" for percent, value in named) + " ms"
