"""placeholder until merged"""

import numpy as np

from hrag.sentences import sentence_ends
from hrag.types import MatchedSentence, Span


def matched_sentence(document, record, starts, ends, weights, which):
    text = document.content(record)
    bounds = [0, *sentence_ends(text)]
    best, best_score = 0, -1.0
    for n, (a, b) in enumerate(zip(bounds, bounds[1:])):
        inside = (starts >= record.char_start + a) & (ends <= record.char_start + b)
        score = float(weights[np.unique(which[inside])].sum()) if inside.any() else 0.0
        if score > best_score:
            best, best_score = n, score
    a, b = bounds[best], bounds[best + 1]
    byte = record.byte_start + len(text[:a].encode())
    span = Span(byte, byte + len(text[a:b].encode()), record.char_start + a, record.char_start + b)
    outline = document.outline
    return MatchedSentence(
        span,
        outline.section_path(outline.section_at(span.char_start)),
        *outline.page_range(span.char_start, span.char_end),
    )
