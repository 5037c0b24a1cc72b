"""The quality benchmark runs without an error on the miniature corpus."""

from pathlib import Path

import pytest

from benchmarks.figures import Results
from benchmarks.quality.__main__ import main, run
from benchmarks.quality.sets import read_sets
from benchmarks.run_folder import FIGURES, LATEST, STORED
from tests.support.servers.processes import Running

DATA = Path(__file__).parent.parent / "data" / "quality"


def test_sets_are_ingested_and_searched_through_services(services: Running) -> None:
    """Pseudo-embeddings have no meaning, so dense retrieval finds less than hybrid retrieval."""
    systems = ["standard", "summary_first:summary_scope=documents", "small_to_big:dense"]
    measured = run(services.client, read_sets(DATA), ",".join(systems), "a test")
    assert measured.about["systems"] == systems
    recall = {
        system: [
            measured.figures[f"quality.miniature.{system}.recall_{budget}"].value
            for budget in (1000, 8000)
        ]
        for system in ("standard", "small_to_big_dense")
    }
    assert recall["standard"][0] > 0.9 > recall["small_to_big_dense"][0] > 0
    two_tiers = "quality.miniature.summary_first_summary_scope_documents"
    assert 0 < measured.figures[f"{two_tiers}.recall_8000"].value <= 1
    assert 0 < measured.figures[f"{two_tiers}.eligible_leaves"].value <= 1
    # All documents together have about 3,000 tokens, so a budget of 8,000 includes every answer.
    assert recall["standard"][1] == recall["small_to_big_dense"][1] == 1


@pytest.mark.slow
def test_a_run_starts_services_and_its_figures_are_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With real embeddings, nearly every question is answered by the first 1,000 tokens."""
    arguments = [str(DATA), "--results", str(tmp_path), "--compare", "context,standard:dense"]
    # The reports would take minutes.
    arguments += ["--sets", "miniature"]
    assert main([*arguments, "--store"]) == 0
    stored = Results.read(tmp_path / STORED / FIGURES)
    assert stored.figures["quality.miniature.context.recall_1000"].value > 0.9
    assert main(arguments) == 0
    assert "equal to the stored run" in capsys.readouterr().out
    assert Results.read(tmp_path / LATEST / FIGURES).about["embedder"].startswith("builtin")
