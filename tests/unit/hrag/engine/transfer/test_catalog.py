"""A comparison of two stores reports conflicting and missing collections and aliases."""

import pytest

from hrag.engine.transfer.transfer_catalog import TransferCatalog, conflicts, missing
from hrag.types import TreeSettings
from tests.support.documents.fakes import collection_settings
from tests.support.engines.memory_engine import MemoryEngine

SETTINGS = collection_settings()


def catalog(*names: str, settings=SETTINGS, **aliases: str) -> TransferCatalog:
    """Returns a catalog with these collections and aliases of the tenant `t`."""
    engine = MemoryEngine().writer()
    for name in names:
        engine.create_collection("t", name, settings)
    for alias, name in aliases.items():
        engine.set_alias("t", alias, name)
    return TransferCatalog.of(engine.reader())


def problems_of(differences) -> list[tuple[str, str]]:
    """Returns the collection and the problem of each difference."""
    all_differences = list(differences)
    assert {(difference.tenant_id, difference.document_id) for difference in all_differences} <= {
        ("t", "")
    }
    return [(difference.collection, difference.problem) for difference in all_differences]


@pytest.mark.parametrize(
    ("source", "target", "problem"),
    [
        (catalog("a"), catalog("b", a="b"), ("a", "is an alias in the target")),
        (
            catalog("b", a="b"),
            catalog("a", "b"),
            ("a", "is an alias in the source, but a collection in the target"),
        ),
        (
            catalog("b", "c", a="b"),
            catalog("b", "c", a="c"),
            ("a", "is an alias of 'b' in the source, but of 'c' in the target"),
        ),
    ],
)
def test_a_name_that_the_target_uses_otherwise_is_a_conflict(source, target, problem):
    assert problems_of(conflicts(source, target)) == [problem]
    assert problems_of(missing(source, target)) == []


def test_settings_that_differ_are_a_conflict_that_names_these_settings():
    other = collection_settings(TreeSettings((64, 128), 0.1), dimension=3)
    ((name, problem),) = problems_of(conflicts(catalog("a"), catalog("a", settings=other)))
    assert name == "a"
    for part in ("tree is", "dimension is 16 in the source, but 3 in the target"):
        assert part in problem
    assert "embedder" not in problem


def test_names_only_in_the_source_are_missing_and_names_only_in_the_target_may_stay():
    source, target = catalog("a", "b", live="a"), catalog("b", "c", mine="c")
    assert problems_of(conflicts(source, target)) == []
    assert problems_of(missing(source, target)) == [
        ("a", "is missing in the target"),
        ("live", "is missing in the target; it is an alias of 'a'"),
    ]
    assert problems_of(missing(target, target)) == []


def test_an_alias_of_a_transferred_collection_that_only_the_target_has_is_reported():
    problems = problems_of(missing(catalog("a"), catalog("a", "b", old="a", mine="b")))
    assert problems == [("old", "exists only in the target, as an alias of 'a'")]
