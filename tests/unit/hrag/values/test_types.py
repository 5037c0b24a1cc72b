"""Creating invalid settings raises an error with the field, the value and the rule."""

import dataclasses

import pytest

from hrag.errors import InvalidArgument
from hrag.types import CollectionSettings, TreeSettings


def refusal(**fields: object) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as refused:
        TreeSettings(**fields)
    return refused.value


def test_the_defaults_are_allowed():
    settings = TreeSettings()
    assert settings.level_sizes == (256, 512, 1024, 2048)
    assert (settings.top_level, settings.leaf_tokens) == (3, 256)


def test_the_smallest_and_the_largest_values_are_allowed():
    assert TreeSettings((32,), 0.0).top_level == 0
    assert TreeSettings((32, 33, 34, 35, 36, 37, 38, 32_768), 0.5, 7).leaf_tokens == 32_768


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((), "level_sizes is '' (0 levels); it must have 1 to 8"),
        (tuple(range(32, 41)), "level_sizes is '32,33,34,35,36,37,38,39,40' (9 levels); "),
        ((31,), "level_sizes is '31'; each size must be from 32 to 32768 tokens"),
        ((32, 32_769), "level_sizes is '32,32769'; each size must be from 32 to 32768 tokens"),
        ((64, 64), "level_sizes is '64,64'; sizes must be strictly increasing"),
        ((64, 32), "level_sizes is '64,32'; sizes must be strictly increasing"),
    ],
)
def test_invalid_level_sizes_are_refused(sizes, message):
    error = refusal(level_sizes=sizes)
    assert error.message.startswith(message)
    assert error.field == "level_sizes"


@pytest.mark.parametrize("ratio", [-0.01, 0.51, 1.0, float("nan"), float("inf")])
def test_an_invalid_overlap_ratio_is_refused(ratio):
    error = refusal(overlap_ratio=ratio)
    assert error.message == f"overlap_ratio is {ratio}; it must be from 0.0 to 0.5"
    assert error.field == "overlap_ratio"


@pytest.mark.parametrize("level", [-1, 4])
def test_an_invalid_embedding_level_is_refused(level):
    error = refusal(embedding_level=level)
    assert error.message == f"embedding_level is {level}; it must be from 0 to 3, the top level"
    assert error.field == "embedding_level"


@pytest.mark.parametrize("level", [0, 4])
def test_a_return_level_must_be_from_the_embedding_level_to_the_top_level(level):
    tree = TreeSettings(embedding_level=1)
    for refuse in (
        lambda: tree.check_return_level(level),
        lambda: CollectionSettings(tree, "fake", 16, return_level=level),
    ):
        with pytest.raises(InvalidArgument) as refused:
            refuse()
        assert refused.value.field == "return_level"
        assert refused.value.message == (
            f"return_level is {level}; it must be from 1, the embedded level, to 3, the top level"
        )
    tree.check_return_level(1)
    assert CollectionSettings(tree, "fake", 16, return_level=3).return_level == 3


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TreeSettings().overlap_ratio = 0.2  # type: ignore[misc]
