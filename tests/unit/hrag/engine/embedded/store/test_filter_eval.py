"""A filter with many conditions uses little memory, and ends when its caller leaves."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hrag.engine.common.sorted_sets import Ordinals
from hrag.engine.embedded.store.filter_eval import FilterEvaluation
from hrag.errors import Cancelled, DeadlineExceeded
from hrag.filters import AllOf, AnyOf, Exists, Filter
from hrag.values.deadline import NEVER, Deadline

_DOCUMENTS = 200_000
_EVERY_DOCUMENT = Exists("document_id")


def _all_documents() -> Ordinals:
    return np.arange(_DOCUMENTS, dtype=np.uint64)


def _evaluation(
    deadline: Deadline = NEVER, all_documents: Callable[[], Ordinals] = _all_documents
) -> FilterEvaluation:
    """Returns an evaluation whose conditions all read `all_documents`; it reads no store."""
    no_transaction: Any = None
    return FilterEvaluation(no_transaction, 1, all_documents, deadline)


@pytest.mark.parametrize("kind", [AnyOf, AllOf])
def test_results_of_many_conditions_are_not_in_memory_at_the_same_time(kind: Any) -> None:
    """Otherwise, 10,000 conditions on a few thousand documents would take a gigabyte.

    A filter may have at most 10,000 conditions.
    """
    tracemalloc.start()
    try:
        found = _evaluation().select(kind((_EVERY_DOCUMENT,) * 100))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) == _DOCUMENTS
    assert peak_bytes < 25 * found.nbytes


@pytest.mark.parametrize(
    "filter", [AnyOf((_EVERY_DOCUMENT,) * 1000), AllOf((_EVERY_DOCUMENT,) * 1000)]
)
def test_a_filter_ends_between_two_conditions_if_its_caller_has_left(filter: Filter) -> None:
    evaluated = 0

    def all_documents() -> Ordinals:
        nonlocal evaluated
        evaluated += 1
        return _all_documents()

    deadline = Deadline(is_waiting=lambda: evaluated < 3)
    with pytest.raises(Cancelled):
        _evaluation(deadline, all_documents).select(filter)
    assert evaluated == 3


@pytest.mark.parametrize("filter", [AnyOf((_EVERY_DOCUMENT,) * 2), AllOf((_EVERY_DOCUMENT,) * 2)])
def test_no_condition_is_evaluated_after_the_deadline(filter: Filter) -> None:
    with pytest.raises(DeadlineExceeded, match="filtering"):
        _evaluation(Deadline.after(0)).select(filter)
