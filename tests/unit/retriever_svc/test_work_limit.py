"""One call embeds a limited amount of text."""

import pytest

from hrag.errors import TooLarge
from hrag.filters import Match
from hrag.types import MAX_EMBEDDED_BYTES
from retriever_svc.work_limit import TEXT_BYTES, check_filters, check_texts


def test_equal_texts_are_counted_once() -> None:
    text = "x" * (MAX_EMBEDDED_BYTES - TEXT_BYTES)
    check_texts([text] * 10)
    with pytest.raises(TooLarge, match="searches has texts of 65,601 bytes") as refused:
        check_texts([text, "y"])
    assert refused.value.field == "searches"


def test_the_filters_of_a_batch_have_the_limit_of_one_filter() -> None:
    filters = [Match("title", (str(number),) * 4_000) for number in range(3)]
    check_filters(filters[:1] * 32)
    check_filters(filters[:2])
    with pytest.raises(TooLarge, match="12003 conditions and values; at most 10000") as refused:
        check_filters(filters)
    assert refused.value.field == "searches"
