"""The notebooks run, and print what is stored in them."""

from pathlib import Path

import pytest

from tests.support.manuals import ROOT, page_id

pytestmark = [pytest.mark.docs, pytest.mark.timeout(300)]

NOTEBOOKS = sorted((ROOT / "docs" / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=page_id)
def test_a_notebook_prints_what_it_shows(path: Path) -> None:
    from tests.docs.notebooks import executed, stored  # They need the extra `docs`.

    assert executed(path) == stored(path), "run `make notebooks`"
