"""The quality benchmark on the miniature, so that it is not found broken when it is needed."""

from pathlib import Path

import pytest

from benchmarks.figures import Results
from benchmarks.quality.__main__ import FIGURES, LATEST, STORED, main, run
from benchmarks.quality.sets import read_sets
from tests.processes import Running

DATA = Path(__file__).parent.parent / "data" / "quality"


def test_sets_are_ingested_and_searched_through_services(services: Running) -> None:
    measured = run(services.client, read_sets(DATA), "standard,small_to_big:dense", "a test")
    recall = "quality.miniature.{}.recall_{}"
    for system in ("standard", "small_to_big_dense"):
        found = [measured.figures[recall.format(system, each)].value for each in (1000, 8000)]
        assert 0 < found[0] < found[1] == 1
    assert measured.about["systems"] == ["standard", "small_to_big:dense"]


@pytest.mark.slow
def test_a_run_starts_its_own_services_and_is_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Words that the embedder knows: what answers is nearly always found first."""
    arguments = [str(DATA), "--results", str(tmp_path), "--compare", "context,standard:dense"]
    assert main([*arguments, "--store"]) == 0
    stored = Results.read(tmp_path / STORED / FIGURES)
    assert stored.figures["quality.miniature.context.recall_1000"].value > 0.9
    assert main(arguments) == 0
    assert "equal to the stored run" in capsys.readouterr().out
    assert Results.read(tmp_path / LATEST / FIGURES).about["embedder"].startswith("builtin")
