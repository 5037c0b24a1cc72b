"""The optional last stage of a search: a reranker orders the best passages.

The reranker orders the best `RerankSetup.top` passages, whatever the limit of the query is. So the
order of the passages does not depend on the query's limit. The snapshot is closed before the
reranker is called, because a read transaction must not wait for a model. If the reranker fails, the
passages are returned in the order of the search, and the result contains the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from hrag.config import DEFAULT_RERANK_TEXT_TOKENS, DEFAULT_RERANK_TOP
from hrag.engine import FindRequest, FindResult
from hrag.models.rerank import Reranker
from hrag.passages.budget_after_rerank import within_limits, without_repeats
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
from retriever_svc.query_options import passage_limit

_log = structlog.get_logger()

# The modes whose passages can be reranked, because each passage is a chunk. In other modes, and
# with `merge_adjacent`, passages are joined from leaves or sentences in the order of the search.
_MODES = frozenset(
    {
        SearchMode.SMALL_TO_BIG,
        SearchMode.STANDARD,
        SearchMode.AUTO_MERGE,
        SearchMode.SUMMARY_FIRST,
    }
)
# The reranker may use this share of the call's remaining time. The rest is for the reply, which
# must arrive before the call's deadline even if the reranker does not answer.
_SHARE_OF_TIME = 0.8
# The reranker reads the title of the document and the titles of the sections of a passage. Together
# they are cut to this many characters.
_MAX_HEADING_CHARS = 256


@dataclass(frozen=True, slots=True)
class RerankSetup:
    """The reranker, and its limits.

    The reranker orders the `top` best passages of a search. It reads at most `text_tokens` tokens
    of each passage.
    """

    reranker: Reranker
    top: int = DEFAULT_RERANK_TOP
    text_tokens: int = DEFAULT_RERANK_TEXT_TOKENS


class RerankStage:
    """Reranks the passages of searches. Safe to call from several threads."""

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
        if query.mode_or_default not in _MODES:
            raise InvalidArgument(
                f"rerank is true, but the mode {query.mode_or_default.name} is not reranked; leave "
                "rerank unset, or use another mode",
                field="rerank",
            )
        if query.merge_adjacent:
            raise InvalidArgument(
                "rerank and merge_adjacent are both true, but joined passages cannot be reranked; "
                "leave one of them unset",
                field="rerank",
            )
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
        """Returns True if the passages of this query have to be reranked.

        The query must have passed `check`.
        """
        is_requested = query.rerank is not False and query.mode_or_default in _MODES
        is_possible = bool(query.text) and not query.merge_adjacent
        return is_requested and is_possible and self._setup is not None

    def widened(self, request: FindRequest) -> FindRequest:
        """Returns a changed copy of `request` that finds the passages to rerank.

        The limit of the copy is at least `RerankSetup.top` passages. The copy has no token budget.
        """
        assert self._setup is not None
        return replace(
            request,
            limit=max(request.limit, self._setup.top),
            token_budget=0,
            cut_last=False,
            # If two passages overlap, the repeated text is removed from the passage with the lower
            # rank. The ranks are known only after reranking.
            keep_overlap=True,
        )

    def __call__(
        self, query: SearchQuery, text: str, candidates: FindResult[Passage], deadline: Deadline
    ) -> FindResult[Passage]:
        """Returns the passages in the reranker's order, within the limits of the query.

        `text` is the query's text for the reranker. `candidates` is the result of a search with the
        request that `widened` returns. Raises RerankerUnavailable or RerankerRejected if the
        reranker fails. Raises DeadlineExceeded if `deadline` has passed, and Cancelled if the
        client has cancelled the call.
        """
        assert self._setup is not None
        try:
            ordered = self._ordered(text, candidates.passages, deadline)
        except (RerankerUnavailable, RerankerRejected) as error:
            _log.warning("rerank_failed", reranker=self._setup.reranker.name, problem=error.message)
            raise
        if not query.keep_overlap:
            ordered = without_repeats(ordered)
        limits = passage_limit(query), query.token_budget
        limited = within_limits(ordered, *limits, cut_last=query.cut_last)
        is_exhausted = candidates.exhausted and list(limited) == ordered
        return candidates.with_passages(limited, exhausted=is_exhausted)

    def _ordered(self, text: str, passages: Sequence[Passage], deadline: Deadline) -> list[Passage]:
        """Returns the first `RerankSetup.top` passages in the reranker's order, then the others.

        Raises RerankerUnavailable or RerankerRejected if the reranker fails.
        """
        assert self._setup is not None
        if not passages:
            return []
        top = passages[: self._setup.top]
        texts = [_text_of(passage, self._setup.text_tokens) for passage in top]
        scores = self._scores(text, texts, deadline)
        scored = [
            replace(passage, rerank_score=score) for passage, score in zip(top, scores, strict=True)
        ]
        best_first = sorted(scored, key=lambda passage: passage.rerank_score or 0.0, reverse=True)
        return [*best_first, *passages[self._setup.top :]]

    def _scores(self, query: str, texts: Sequence[str], deadline: Deadline) -> list[float]:
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
