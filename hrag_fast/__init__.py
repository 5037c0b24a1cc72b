"""The compiled hot path: nearest leaves, ranked ancestors, messages; where a text may be cut.

Knows nothing of stores or services: arrays in, arrays and bytes out. Without the compiled
extension the import fails, because a silent slow path is one that nobody notices.
"""

try:
    from hrag_fast._boundaries import (
        CUT_CODE_POINT,
        CUT_FORBIDDEN,
        CUT_PARAGRAPH,
        CUT_SENTENCE,
        CUT_WORD,
        boundary_ranks,
    )
    from hrag_fast._climb import COUNT, MAX, MEAN, SUM, Groups, climb
    from hrag_fast._graph import Graph
    from hrag_fast._passages import CitedDocument, PassageEncoder
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("hrag_fast."):
        raise
    raise ImportError(
        f"hrag_fast is not compiled: {error.name} is missing; build the package with "
        "`pip install .`, or in a checkout with `python setup.py build_ext --inplace`",
        name=error.name,
    ) from error

__all__ = [
    "COUNT",
    "CUT_CODE_POINT",
    "CUT_FORBIDDEN",
    "CUT_PARAGRAPH",
    "CUT_SENTENCE",
    "CUT_WORD",
    "MAX",
    "MEAN",
    "SUM",
    "CitedDocument",
    "Graph",
    "Groups",
    "PassageEncoder",
    "boundary_ranks",
    "climb",
]
