"""A local server with `POST /rerank` in the forms of Cohere and of TEI, and faults on demand.

TEI is Hugging Face's text-embeddings-inference. The score of a text is the count of the query's
words that it contains. Tests inject the faults of `tests.support.servers.openai_server`; the field
`data` of a reply is then the list of its entries.
"""

import json
from typing import Any

from tests.support.servers.openai_server import Fault, OpenAIServer, Reply

# In replies in Cohere's form, the server reports this count of tokens.
TOKENS = 11


def score(query: str, text: str) -> int:
    """Returns the count of the query's words that the text contains."""
    words = set(text.lower().replace(".", " ").split())
    return sum(word in words for word in query.lower().split())


def last_score(value: Any) -> Fault:
    """Answers with `value` as the score of the last entry."""

    def spoil(reply: Reply) -> Reply:
        *others, last = reply.data
        (field,) = last.keys() - {"index"}
        return Reply([*others, last | {field: value}], reply.events)

    return spoil


class RerankServer(OpenAIServer):
    """The server, which listens at a free loopback port inside a `with` block."""

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

    def _correct_reply(self, request: dict[str, Any]) -> Reply:
        """Returns a reply whose entries are sorted, best first, as reranking servers do."""
        field = "score" if "texts" in request else "relevance_score"
        texts = request.get("texts") or request["documents"]
        entries: list[dict[str, Any]] = [
            {"index": index, field: score(request["query"], text)}
            for index, text in enumerate(texts)
        ]
        return Reply(sorted(entries, key=lambda entry: entry[field], reverse=True))
