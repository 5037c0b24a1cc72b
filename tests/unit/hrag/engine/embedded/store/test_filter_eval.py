"""A filter of many conditions costs neither all memory nor more than its caller's time."""

import time
import tracemalloc
from typing import Any

import numpy as np
import pytest

from hrag.engine.common.sorted_sets import Ordinals
from hrag.engine.embedded.store.filter_eval import FilterEvaluation
from hrag.errors import DeadlineExceeded
from hrag.filters import AllOf, AnyOf, Exists, Filter
from hrag.values.deadline import NEVER, Deadline

_DOCUMENTS = 200_000
_EACH = Exists("document_id")


def _evaluation(deadline: Deadline = NEVER, seconds: float = 0.0) -> FilterEvaluation:
    """Of documents whose every condition takes `seconds`; reads no store."""

    def everything() -> Ordinals:
        time.sleep(seconds)
        return np.arange(_DOCUMENTS, dtype=np.uint64)

    nothing: Any = None
    return FilterEvaluation(nothing, 1, everything, deadline)


@pytest.mark.parametrize("kind", [AnyOf, AllOf])
def test_many_conditions_that_pass_everything_are_not_held_side_by_side(kind: Any) -> None:
    """At 10,000 conditions, the most allowed, a few thousand documents took a gigabyte."""
    tracemalloc.start()
    try:
        found = _evaluation().select(kind((_EACH,) * 100))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) == _DOCUMENTS
    assert peak_bytes < 25 * found.nbytes


@pytest.mark.parametrize("given", [AnyOf((_EACH,) * 1000), AllOf((_EACH,) * 1000)])
def test_a_caller_who_stops_waiting_ends_a_filter_between_two_conditions(given: Filter) -> None:
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded, match="filtering"):
        _evaluation(Deadline.after(0.05), seconds=0.01).select(given)
    assert time.monotonic() - began < 1
