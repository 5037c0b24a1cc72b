"""Citations are the numbers of passages in an answer. A judge sees the answer without them."""

import pytest

from hrag.evaluation.answer_citations import cited_passages, without_citations


@pytest.mark.parametrize(
    ("answer", "cited", "bare"),
    [
        ("Forty.", (), "Forty."),
        ("Forty [2]. Or not [1].", (2, 1), "Forty. Or not."),
        ("Forty [1, 3][3].", (1, 3), "Forty."),
        ("Forty [1-3].", (1, 2, 3), "Forty."),
        ("四十【2】。", (2,), "四十。"),
        ("An array [0] of [2020] and [4].", (), "An array [0] of [2020] and [4]."),
        ("As in [Smith 2003].", (), "As in [Smith 2003]."),
        ("[1]", (1,), ""),
        ("[999999999999999999] [1-999999]", (), "[999999999999999999] [1-999999]"),
    ],
)
def test_numbers_of_passages_are_citations(answer: str, cited: tuple[int, ...], bare: str) -> None:
    assert cited_passages(answer, 3) == cited
    assert without_citations(answer, 3) == bare
