"""The two forms of `POST /rerank`: the fields of a request, and the format of a reply.

- `cohere`: the request has `documents`, and the reply has a list `results`. Cohere defined this
  form (v1 and v2); Jina, vLLM and llama.cpp's server have adopted it.
- `tei`: the request has `texts`, and the reply is a list. Hugging Face's
  text-embeddings-inference uses this form; llama.cpp's server supports it too.

A reply has one entry for each text, with the index and the score of the text, usually the best text
first. Servers guarantee neither an order nor finite scores, and entries may be missing, so
everything in a reply is validated.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hrag.observe import metrics
from hrag.values.errors import RerankerRejected
from hrag.values.limits import MAX_LIMIT

Request = dict[str, Any]
"""The fields of a request."""


@dataclass(frozen=True, slots=True)
class RerankForm:
    """One of the two formats of requests and replies of `POST /rerank`.

    - `request` returns the request for a model name, a query and texts. The model name may be
      empty.
    - `results` is the name of the reply's field that contains the list of entries. If `results` is
      empty, the reply itself is the list.
    - `score` is the name of the field that contains the score of an entry.
    - `max_texts` is the largest number of texts that a request may have.
    """

    name: str
    request: Callable[[str, str, Sequence[str]], Request]
    results: str
    score: str
    max_texts: int

    def scores(self, content: bytes, count: int, source: str) -> list[float]:
        """Returns the scores in a reply for `count` texts, in the order of the texts.

        If the reply is invalid, raises RerankerRejected, whose message starts with `source`.
        """
        entries = self._entries(content, source)
        if len(entries) != count:
            raise RerankerRejected(f"{source} returned {len(entries)} scores for {count} texts")
        by_index = {_index(entry): entry for entry in entries}
        if by_index.keys() != set(range(count)):
            raise RerankerRejected(
                f"{source} returned {count} scores; each index from 0 to {count - 1} must occur "
                "exactly once, but some are missing or wrong"
            )
        return [self._score(by_index[index], source) for index in range(count)]

    def _score(self, entry: dict[str, Any], source: str) -> float:
        score = _finite(entry.get(self.score))
        if score is None:
            raise RerankerRejected(
                f"{source} returned a `{self.score}` that is not a finite number"
            )
        return score

    def _entries(self, content: bytes, source: str) -> list[dict[str, Any]]:
        try:
            reply = json.loads(content)
        except (ValueError, RecursionError):
            raise RerankerRejected(f"{source} returned a reply that is not JSON") from None
        usage = reply.get("usage") if isinstance(reply, dict) else None
        entries = reply
        if self.results:
            entries = reply.get(self.results) if isinstance(reply, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            expected = f"JSON with a list `{self.results}`" if self.results else "a JSON list"
            raise RerankerRejected(
                f"{source} did not return {expected} of objects; check HRAG_RERANK_FORM"
            )
        metrics.reranker_tokens(_tokens(usage))
        return entries


def _cohere_request(model: str, query: str, texts: Sequence[str]) -> Request:
    request: Request = {"query": query, "documents": list(texts), "top_n": len(texts)}
    return request | ({"model": model} if model else {})


def _tei_request(model: str, query: str, texts: Sequence[str]) -> Request:  # noqa: ARG001
    # `model` is not sent, because the server has only one model. Without `truncate`, the server
    # refuses texts that are too long for its model.
    return {"query": query, "texts": list(texts), "raw_scores": False, "truncate": True}


# text-embeddings-inference accepts at most 32 texts in a request, unless it is configured otherwise
# (`--max-client-batch-size`). Servers with Cohere's form accept at least as many texts as a search
# may send.
FORMS = {
    "cohere": RerankForm("cohere", _cohere_request, "results", "relevance_score", MAX_LIMIT),
    "tei": RerankForm("tei", _tei_request, "", "score", 32),
}


def _index(entry: dict[str, Any]) -> int | None:
    index = entry.get("index")
    return index if isinstance(index, int) and not isinstance(index, bool) else None


def _finite(value: object) -> float | None:
    """Returns `value` as a float if it is a finite number, else None."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _tokens(usage: object) -> int:
    """Returns the count of tokens that the endpoint reports; 0 if it reports no valid count.

    `usage` is the field `usage` of the reply.
    """
    count = usage.get("total_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) and 0 <= count < 1 << 32 else 0
