"""The systems to compare are parsed from the command line."""

import pytest

from hrag.errors import InvalidArgument
from hrag.evaluation.systems import (
    DEFAULT_SYSTEMS,
    System,
    baseline_of,
    option_types,
    parse_systems,
)
from hrag.types import Aggregation, Retrieval, SearchMode


def test_systems_are_modes_with_options() -> None:
    systems = parse_systems(
        "context, standard:dense,small_to_big:hybrid:return_level=1:aggregation=sum,"
        "auto_merge:merge_ratio=0.7:merge_adjacent=true:collection=flat"
    )
    assert [(system.mode, dict(system.options)) for system in systems] == [
        (SearchMode.CONTEXT, {}),
        (SearchMode.STANDARD, {"retrieval": Retrieval.DENSE}),
        (
            SearchMode.SMALL_TO_BIG,
            {"retrieval": Retrieval.HYBRID, "return_level": 1, "aggregation": Aggregation.SUM},
        ),
        (
            SearchMode.AUTO_MERGE,
            {"merge_ratio": 0.7, "merge_adjacent": True, "collection": "flat"},
        ),
    ]
    assert [system.fills_budget for system in systems] == [True, False, False, False]
    assert systems[1].name == "standard:dense"


def test_arguments_that_the_evaluation_sets_are_not_options_of_a_system() -> None:
    assert {"limit", "token_budget", "query", "tenant_id", "filter"} & set(option_types()) == set()
    assert {"candidates", "lexical_weight", "max_per_document"} <= set(option_types())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it must name one system or more"),
        ("best", "mode 'best'; it must be one of small_to_big, standard"),
        ("standard:sparse", "retrieval 'sparse'; it must be one of hybrid, dense, lexical"),
        ("standard:depth=3", "the option 'depth'; it must be one of collection"),
        ("standard:limit=3", "the option 'limit'"),
        ("standard:candidates=many", "candidates 'many'; it must be a value of type int"),
        ("standard:merge_adjacent=yes", "merge_adjacent 'yes'; it must be a value of type bool"),
        ("standard:dense:lexical", "has the option retrieval twice"),
        ("context,context", "has the system 'context' twice"),
    ],
)
def test_unknown_systems_and_options_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_systems(text)
    assert message in caught.value.message
    assert caught.value.field == "compare"


def test_the_baseline_is_the_last_system_or_the_named_one() -> None:
    systems = parse_systems(DEFAULT_SYSTEMS)
    assert baseline_of(systems, "") == System("standard", SearchMode.STANDARD)
    assert baseline_of(systems, "context").name == "context"
    with pytest.raises(InvalidArgument, match="baseline is 'best'; it must be one of context"):
        baseline_of(systems, "best")
