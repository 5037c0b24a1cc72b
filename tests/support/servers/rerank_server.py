"""A local server with `POST /rerank` in both forms, and faults on demand.

A text's score is the number of the query's words in it. It takes the faults of
`tests.support.servers.openai_server`. `data` of a reply are its entries.
"""

import json
from typing import Any

from tests.support.servers.openai_server import Fault, OpenAIServer, Reply

# The server reports this number of tokens for each request in Cohere's form.
TOKENS = 11


def score(query: str, text: str) -> int:
    """Returns the number of the query's words that the text contains."""
    words = set(text.lower().replace(".", " ").split())
    return sum(word in words for word in query.lower().split())


def last_score(value: Any) -> Fault:
    """Answers `value` as the score of the last entry."""

    def spoil(reply: Reply) -> Reply:
        *well, last = reply.data
        (field,) = last.keys() - {"index"}
        return Reply([*well, last | {field: value}], reply.events)

    return spoil


class RerankServer(OpenAIServer):
    """The server on a free loopback port, from `with` to its end."""

    paths = ("/rerank", "/v1/rerank")

    @property
    def base_url(self) -> str:
        return f"http://{self.address}"

    def content(self, reply: Reply) -> bytes:
        """Returns the body of a reply: a bare list if the request was in the form `tei`."""
        if reply.body is not None:
            return reply.body
        if not reply.data or "score" in reply.data[0]:
            return json.dumps(reply.data).encode()
        usage = {"total_tokens": TOKENS}
        return json.dumps({"results": reply.data, "usage": usage}).encode()

    def _well(self, request: dict[str, Any]) -> Reply:
        """Returns a reply whose entries are sorted, best first, as reranking servers do."""
        field = "score" if "texts" in request else "relevance_score"
        texts = request.get("texts") or request["documents"]
        entries: list[dict[str, Any]] = [
            {"index": index, field: score(request["query"], text)}
            for index, text in enumerate(texts)
        ]
        return Reply(sorted(entries, key=lambda entry: entry[field], reverse=True))
