"""The metrics of retrieval, each for one question, from 0 to 1; a higher value is better.

The gold of a question is the expected texts (spans or quotes that answer the question), or the
expected documents (which contain the answer). A piece of gold is one of these texts or documents.
Below, "returned text" means the returned passages, cut to a token budget. A passage finds an
expected text if at least half of the shorter one of the two is also in the longer one. A passage
finds an expected document if it belongs to this document.

* Recall: the share of the gold that the returned text contains. If texts are expected, it is a
  share of their characters. If documents are expected, it is the share of the documents of which
  the returned text contains any part.
* Precision: the share of the returned text that is gold, or that belongs to expected documents.
* Intersection over union: the length of the gold in the returned text, divided by the length of
  gold and returned text together. If documents are expected, it equals the precision.
* Hit: 1 if at least one returned passage, as cut to the budget, finds a piece of gold, else 0.
* Reciprocal rank: 1 / rank of the first result that finds a piece of gold; 0 if none does. The
  results are the returned passages, not cut, best first. If documents are expected, the results are
  the documents of these passages, in the order of their best passages. The mean of the reciprocal
  ranks of all questions is MRR.
* nDCG: discounted cumulative gain, which is the sum of gain / log2(rank + 1) over the first 10
  ranks, divided by the same sum of the ideal ranking (Järvelin and Kekäläinen, Cumulated gain-based
  evaluation of IR techniques, ACM TOIS 20(4), 2002). The gain at a rank is the relevance of the
  expected document, as in trec_eval and BEIR, and 0 for any other document. For expected texts, the
  gain is 1 for each piece of gold that is found for the first time; a passage that finds several
  new pieces occupies one rank for each of them.
"""

import math
from collections.abc import Sequence

from hrag.evaluation.gold import (
    Coverage,
    ResolvedGold,
    any_found,
    coverage,
    found_gains,
    ideal_gains,
)
from hrag.evaluation.retrieved import RetrievalResult

RANKS = 10  # nDCG is computed from the first 10 ranks.

RECALL, PRECISION, IOU, HIT = "recall", "precision", "iou", "hit"
MRR, NDCG = "mrr", f"ndcg@{RANKS}"

Scores = dict[str, float]


def at_budget(metric: str, budget: int) -> str:
    """Returns the name of a metric at a token budget, for example `recall@1000`."""
    return f"{metric}@{budget}"


def metric_names(budgets: Sequence[int]) -> tuple[str, ...]:
    """Returns the names of all metrics, in the order of reports."""
    budgeted = (
        at_budget(metric, budget) for metric in (RECALL, PRECISION, IOU, HIT) for budget in budgets
    )
    return (*budgeted, MRR, NDCG)


def scores(gold: ResolvedGold, result: RetrievalResult | None, budgets: Sequence[int]) -> Scores:
    """Returns all metrics of one question by their names.

    If `result` is None, the search has failed, and all metrics are 0.
    """
    if result is None:
        return dict.fromkeys(metric_names(budgets), 0.0)
    by_name: Scores = {}
    for budget in budgets:
        spans = result.texts[budget].spans
        covered = coverage(gold, spans)
        by_name[at_budget(RECALL, budget)] = recall(covered)
        by_name[at_budget(PRECISION, budget)] = precision(covered)
        by_name[at_budget(IOU, budget)] = intersection_over_union(covered)
        by_name[at_budget(HIT, budget)] = float(any_found(gold, spans))
    gains = found_gains(gold, result.ranking)
    by_name[MRR] = reciprocal_rank(gains)
    by_name[NDCG] = ndcg(gains, ideal_gains(gold), RANKS)
    return by_name


def recall(covered: Coverage) -> float:
    """Returns the share of the gold that the returned text contains; 0 if there is no gold."""
    return covered.found / covered.gold if covered.gold else 0.0


def precision(covered: Coverage) -> float:
    """Returns the share of the returned text that is gold; 0 if no text was returned."""
    return covered.relevant / covered.text if covered.text else 0.0


def intersection_over_union(covered: Coverage) -> float:
    """Returns the length of the returned gold, divided by the length of gold and returned text.

    The divisor counts text that is both gold and returned only once. This is the Jaccard index.
    Returns 0 if there is neither gold nor returned text.
    """
    return covered.relevant / covered.union if covered.union else 0.0


def reciprocal_rank(gains: Sequence[float]) -> float:
    """Returns 1 / rank of the first gain that is not 0; 0 if all gains are 0."""
    return next((1 / rank for rank, gain in enumerate(gains, 1) if gain), 0.0)


def dcg(gains: Sequence[float], ranks: int) -> float:
    """Returns the discounted cumulative gain of the first `ranks` ranks."""
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains[:ranks], 1))


def ndcg(gains: Sequence[float], ideal: Sequence[float], ranks: int) -> float:
    """Returns the normalised discounted cumulative gain of the first `ranks` ranks.

    `ideal` contains the gains of the best possible ranking. Returns 0 if all these gains are 0.
    """
    best = dcg(ideal, ranks)
    return dcg(gains, ranks) / best if best else 0.0
