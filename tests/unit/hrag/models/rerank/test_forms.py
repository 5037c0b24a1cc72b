"""Valid replies of both request forms are read, and invalid replies are refused."""

import json
from typing import Any

import pytest

from hrag.errors import RerankerRejected
from hrag.models.rerank.request_forms import FORMS

SOURCE = "the reranking endpoint x"
# Each row has the (index, score) pairs of a reply for three texts, and words of the error message.
WRONG_ENTRIES: list[tuple[list[tuple[Any, Any]], str]] = [
    ([], "returned 0 scores for 3 texts"),
    ([(0, 1.0), (1, 1.0)], "returned 2 scores for 3 texts"),
    ([(0, 1.0), (1, 1.0), (2, 1.0), (2, 1.0)], "returned 4 scores for 3 texts"),
    *(
        ([(0, 1.0), (index, 1.0), (2, 1.0)], "each index from 0 to 2 must occur exactly once")
        for index in (0, 3, -1, "1", True, 1.0, None, 10**100)
    ),
    *(
        ([(0, 1.0), (1, score), (2, 1.0)], "that is not a finite number")
        for score in (float("nan"), float("inf"), 10**400, None, True, "0.5", [], {})
    ),
]


def _reply(form: str, entries: list[tuple[Any, Any]]) -> bytes:
    score = {"cohere": "relevance_score", "tei": "score"}[form]
    results = [{"index": index, score: value, "more": "text"} for index, value in entries]
    return json.dumps(results if form == "tei" else {"results": results, "meta": None}).encode()


@pytest.mark.parametrize("form", FORMS)
def test_scores_are_in_the_order_of_the_texts(form: str) -> None:
    reply = _reply(form, [(2, 9), (0, -3.5), (1, -11.25)])
    assert FORMS[form].scores(reply, 3, SOURCE) == [-3.5, -11.25, 9.0]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("entries", "words"), WRONG_ENTRIES)
def test_a_reply_with_a_wrong_index_or_score_is_refused(
    form: str, entries: list[tuple[Any, Any]], words: str
) -> None:
    with pytest.raises(RerankerRejected, match=f"^{SOURCE} .*{words}"):
        FORMS[form].scores(_reply(form, entries), 3, SOURCE)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("content", [b"", b"<html>", b"\xff", b"[" * 100_000, b"1" * 10_000])
def test_a_reply_that_is_not_json_is_refused(form: str, content: bytes) -> None:
    with pytest.raises(RerankerRejected, match="not JSON"):
        FORMS[form].scores(content, 3, SOURCE)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "content", [b"null", b"{}", b"7", b'{"results": {}}', b"[[0, 1]]", b'{"results": [1]}']
)
def test_json_of_another_shape_is_refused(form: str, content: bytes) -> None:
    with pytest.raises(RerankerRejected, match="check HRAG_RERANK_FORM"):
        FORMS[form].scores(content, 1, SOURCE)


@pytest.mark.parametrize(("form", "other"), [("cohere", "tei"), ("tei", "cohere")])
def test_the_refusal_of_a_reply_of_the_other_form_names_the_setting(form: str, other: str) -> None:
    with pytest.raises(RerankerRejected, match="check HRAG_RERANK_FORM"):
        FORMS[form].scores(_reply(other, [(0, 1.0)]), 1, SOURCE)
