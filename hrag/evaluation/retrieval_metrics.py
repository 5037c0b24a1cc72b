"""The metrics of retrieval, each for one question, from 0 to 1; a higher value is better.

The gold of a question is the text that answers the question, or the documents that contain the
answer. In the metrics, the text means the passages that a system returned, cut to a token budget.

* Recall: the share of the gold that the text contains. Precision: the share of the text that is
  gold. Intersection over union: the length of the gold in the text, divided by the length of gold
  and text together.
* Hit: 1 if the text finds any piece of gold, else 0.
* Reciprocal rank: 1 / rank of the first piece of gold that is found. The mean of the reciprocal
  ranks of all questions is MRR.
* nDCG: discounted cumulative gain, which is the sum of gain / log2(rank + 1) over the first
  ranks, divided by the same sum of the ideal ranking (Järvelin and Kekäläinen, Cumulated
  gain-based evaluation of IR techniques, ACM TOIS 20(4), 2002). The gain equals the relevance, as
  in trec_eval and BEIR.
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
    """Returns the share of the gold that was found; 0 if there is no gold."""
    return covered.found / covered.gold if covered.gold else 0.0


def precision(covered: Coverage) -> float:
    """Returns the share of the text that is gold; 0 if there is no text."""
    return covered.relevant / covered.text if covered.text else 0.0


def intersection_over_union(covered: Coverage) -> float:
    """Returns the length of the gold in the text, divided by the length of gold and text together.

    This is the Jaccard index. Returns 0 if there is neither gold nor text.
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
