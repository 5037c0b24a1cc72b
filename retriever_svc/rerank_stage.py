"""The optional reranking of a search: a reranker orders the best chunks.

A reranked search runs in three steps:

1. A search returns the best chunks whole, in the order of the search. Nothing is joined, shortened
   or cut. The snapshot is then closed, because a read transaction must not wait for a model.
2. The reranker scores the chunks.
3. A further search with the same query puts these chunks first, in the order of their scores. Its
   limit, its token budget and the rules of its mode apply to this order.

The reranker orders as many chunks as `RerankSetup` says, whatever the limit of the query is. So the
order of the passages does not depend on the query's limit. If the reranker fails, the passages are
returned in the order of the search, and the result contains the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from hrag.config import (
    DEFAULT_RERANK_LEAVES,
    DEFAULT_RERANK_TEXT_TOKENS,
    DEFAULT_RERANK_TOP,
)
from hrag.engine import FindRequest, FindResult, RankedChunk
from hrag.models.rerank import Reranker
from hrag.passages.excerpt import cut_excerpt
from hrag.text.citations import sections
from hrag.text.plain_text import one_line
from hrag.values.deadline import Deadline
from hrag.values.errors import (
    DeadlineExceeded,
    InvalidArgument,
    RerankerNotConfigured,
    RerankerRejected,
    RerankerUnavailable,
)
from hrag.values.search import Passage, SearchMode, SearchQuery

_log = structlog.get_logger()

# The reranker may use this share of the call's remaining time. The rest is for the search after it
# and for the reply, which must arrive before the call's deadline even if the reranker does not
# answer.
_SHARE_OF_TIME = 0.8
# The reranker reads the title of the document and the titles of the sections of a passage. Together
# they are cut to this many characters.
_MAX_HEADING_CHARS = 256


@dataclass(frozen=True, slots=True)
class RerankSetup:
    """The reranker, and its limits.

    The reranker orders the `leaves` best leaves of a search in CONTEXT or SENTENCE_WINDOW, and the
    `top` best passages of a search in another mode. It reads at most `text_tokens` tokens of each.
    """

    reranker: Reranker
    top: int = DEFAULT_RERANK_TOP
    leaves: int = DEFAULT_RERANK_LEAVES
    text_tokens: int = DEFAULT_RERANK_TEXT_TOKENS


class RerankStage:
    """Reranks the chunks that searches find. Safe to call from several threads."""

    def __init__(self, setup: RerankSetup | None) -> None:
        """Creates the stage. If `setup` is None, no search is reranked."""
        self._setup = setup

    def check(self, query: SearchQuery) -> None:
        """Raises an error if the query requires a reranker, but cannot be reranked.

        Raises RerankerNotConfigured if there is no reranker, and InvalidArgument if an option of
        the query excludes reranking.
        """
        if not query.rerank:
            return
        if not query.text:
            raise InvalidArgument(
                "rerank is true in a search by vector; a reranker needs a text, so leave rerank "
                "unset",
                field="rerank",
            )
        if self._setup is None:
            raise RerankerNotConfigured(
                "rerank is true, and this retriever has no reranker; set HRAG_RERANK_BASE_URL"
            )

    def applies_to(self, query: SearchQuery) -> bool:
        """Returns True if the chunks that this query finds have to be reranked.

        The query must have passed `check`.
        """
        return bool(query.text) and query.rerank is not False and self._setup is not None

    def chunks_request(self, request: FindRequest) -> FindRequest:
        """Returns the request that finds the chunks to rerank, for a search with `request`.

        A limit of passages per document applies to these chunks, except if the search joins chunks
        to passages.
        """
        assert self._setup is not None
        ranks_leaves = request.mode in (SearchMode.CONTEXT, SearchMode.SENTENCE_WINDOW)
        return replace(
            request,
            mode=SearchMode.STANDARD if ranks_leaves else request.mode,
            limit=self._setup.leaves if ranks_leaves else self._setup.top,
            max_per_document=0 if request.merge_adjacent else request.max_per_document,
            token_budget=0,
            cut_last=False,
            merge_adjacent=False,
            keep_overlap=True,
        )

    def scores(
        self, text: str, chunks: Sequence[RankedChunk], deadline: Deadline
    ) -> dict[int, float]:
        """Returns the keys of the chunks, best chunk first, with the reranker's scores.

        Chunks with equal scores keep their order. `text` is the query's text for the reranker.
        Raises RerankerUnavailable or RerankerRejected if the reranker fails. Raises
        DeadlineExceeded if `deadline` has passed, and Cancelled if the client has cancelled the
        call.
        """
        assert self._setup is not None
        texts = [_text_of(chunk.passage, self._setup.text_tokens) for chunk in chunks]
        try:
            scores = self._rerank(text, texts, deadline) if texts else []
        except (RerankerUnavailable, RerankerRejected) as error:
            _log.warning("rerank_failed", reranker=self._setup.reranker.name, problem=error.message)
            raise
        scored = zip((chunk.key for chunk in chunks), scores, strict=True)
        return dict(sorted(scored, key=lambda pair: pair[1], reverse=True))

    def _rerank(self, query: str, texts: Sequence[str], deadline: Deadline) -> list[float]:
        assert self._setup is not None
        reranker = self._setup.reranker
        try:
            share = deadline.within(_SHARE_OF_TIME * deadline.remaining_s)
            return reranker.rerank(query, texts, share)
        except DeadlineExceeded:
            deadline.check("reranking")
            raise RerankerUnavailable(
                f"the reranker {reranker.name} did not answer within its share of the call's time"
            ) from None


def reranked_request(
    request: FindRequest, chunks: FindResult[RankedChunk], scores: dict[int, float]
) -> FindRequest:
    """Returns a copy of `request` that puts the reranked chunks first, best chunk first.

    `chunks` are the chunks that `scores` rates.
    """
    return replace(request, rerank_scores=scores, least_considered=chunks.considered)


def _text_of(passage: Passage, max_tokens: int) -> str:
    """Returns the text that the reranker reads for a passage.

    The text consists of the title of the document, the titles of sections, and at most `max_tokens`
    tokens of the content around the best matched leaf.
    """
    chunk = passage.chunk
    heading = " > ".join(filter(None, (one_line(chunk.title), sections(chunk))))[
        :_MAX_HEADING_CHARS
    ]
    return "\n".join(filter(None, (heading, cut_excerpt(passage, max_tokens))))
