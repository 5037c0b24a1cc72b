"""The notebooks run and print the output that is stored in them."""

from pathlib import Path

import pytest

from tests.support.manuals import ROOT, page_id

pytestmark = [pytest.mark.docs, pytest.mark.timeout(300)]

NOTEBOOKS = sorted((ROOT / "docs" / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=page_id)
def test_a_notebook_prints_its_stored_output(path: Path) -> None:
    # This module needs the extra `docs`.
    from tests.docs.notebooks import executed, stored

    assert executed(path) == stored(path), "run `make notebooks`"
