"""One call embeds a limited amount of text."""

import pytest

from hrag.errors import TooLarge
from hrag.filters import Match
from hrag.types import MAX_EMBEDDED_BYTES
from retriever_svc.work_limit import TEXT_BYTES, EmbeddingWork, check_filters


def test_equal_texts_are_counted_once() -> None:
    work = EmbeddingWork()
    for _ in range(10):
        work.add_queries(["x" * (MAX_EMBEDDED_BYTES - TEXT_BYTES)])
    with pytest.raises(TooLarge, match="searches has texts of 65 bytes"):
        work.add_queries(["y"])


def test_the_error_names_a_limit_that_is_possible() -> None:
    leaves = [[f"{number} " + "x" * 996] for number in range(100)]
    with pytest.raises(TooLarge, match=r"a limit of 6\d is possible") as refused:
        EmbeddingWork().add_sentences(leaves, 0)
    assert refused.value.field == "limit"
    with pytest.raises(TooLarge, match="leaves are too long"):
        EmbeddingWork().add_sentences([["x" * MAX_EMBEDDED_BYTES]], 0)


def test_the_filters_of_a_batch_have_the_limit_of_one_filter() -> None:
    filters = [Match("title", (str(number),) * 4_000) for number in range(3)]
    check_filters(filters[:1] * 32)
    check_filters(filters[:2])
    with pytest.raises(TooLarge, match="12003 conditions and values; at most 10000") as refused:
        check_filters(filters)
    assert refused.value.field == "searches"
