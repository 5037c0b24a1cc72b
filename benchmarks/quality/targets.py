"""The target recall for each set, mode and token budget, with the default retrieval.

Each recall in `_RECIPE` was measured with a separate program, which implements the mode without
hrag. A target is one percentage point lower than that recall (see
docs/decisions/benchmarks-and-tests.md).
"""

from hrag.evaluation.searches import DEFAULT_BUDGETS
from hrag.types import SearchMode

ALLOWANCE = 0.01

_SETS = ("covid_qa", "chroma_general", "medquad_long", "stard_laws")
# The recall in percent: for each set of _SETS, four values, one for each of DEFAULT_BUDGETS.
_RECIPE = {
    SearchMode.CONTEXT: "86 89 95 98  96 99 100 100  51 71 87 98  76 82 91 96",
    SearchMode.STANDARD: "84 90 94 98  94 98 100 100  49 67 84 97  73 81 89 93",
    SearchMode.AUTO_MERGE: "79 88 92 97  87 97 100 100  39 63 84 96  68 79 87 95",
    SearchMode.SMALL_TO_BIG: "72 84 91 96  85 96 100 100  38 62 84 96  63 77 86 95",
}

TargetKey = tuple[str, str, int]
"""The set, the system and the token budget of a target."""


def _read_targets() -> dict[TargetKey, float]:
    columns = [(name, budget) for name in _SETS for budget in DEFAULT_BUDGETS]
    return {
        (name, mode.value, budget): int(percent) / 100 - ALLOWANCE
        for mode, row in _RECIPE.items()
        for (name, budget), percent in zip(columns, row.split(), strict=True)
    }


TARGETS = _read_targets()
