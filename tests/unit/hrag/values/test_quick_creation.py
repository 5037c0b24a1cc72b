"""Values that are created quickly equal those that their class creates, and are frozen too."""

import pickle
from dataclasses import FrozenInstanceError, asdict, fields, replace

import pytest

from hrag.types import SearchMode, SearchQuery, SearchResult, Timings
from hrag.v1 import retriever_pb2
from hrag.values.quick_creation import created

VALUES = [
    (SearchQuery, {"tenant_id": "t", "query": "text", "limit": 3, "mode": SearchMode.STANDARD}),
    (
        Timings,
        {"embed_us": 1, "search_us": 2, "climb_us": 3, "fetch_us": 4, "total_us": 10},
    ),
    (
        SearchResult,
        {
            "passages": (),
            "mode": SearchMode.STANDARD,
            "matched_at_level": 0,
            "returned_at_level": 1,
            "candidates_considered": 5,
            "exhausted": True,
            "sequence": 7,
            "timings": Timings(1, 2, 3, 4, 10),
            "plan": None,
            "eligible_leaves": 9,
        },
    ),
]


@pytest.mark.parametrize(("kind", "values"), VALUES)
def test_a_value_equals_the_one_that_its_class_creates(kind, values):
    value = created(kind, dict(values))
    assert value == kind(**values)
    assert repr(value) == repr(kind(**values))
    assert hash(value) == hash(kind(**values))
    assert asdict(value) == asdict(kind(**values))
    assert replace(value) == pickle.loads(pickle.dumps(value)) == value
    with pytest.raises(FrozenInstanceError):
        setattr(value, fields(kind)[0].name, None)


def test_every_field_of_a_search_request_is_a_field_of_a_query():
    """So no field of a message becomes an attribute that a query does not have."""
    names = {field.name for field in retriever_pb2.SearchRequest.DESCRIPTOR.fields}
    assert names - {"text"} == {field.name for field in fields(SearchQuery)} - {"query"}
