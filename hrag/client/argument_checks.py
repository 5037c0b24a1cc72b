"""Checks the types of those arguments whose types protobuf does not check."""

from collections.abc import Iterable

from hrag.values.conversation import ConversationTurn
from hrag.values.documents import Document, Page
from hrag.values.errors import InvalidArgument
from hrag.values.ids import quoted
from hrag.values.search import SearchQuery

# The longest deadline of a call, about thirty years. A longer deadline would overflow gRPC's clock,
# and gRPC would treat it as a deadline in the past.
MAX_TIMEOUT_S = 1_000_000_000


def checked_timeout(timeout_s: float) -> float:
    """Returns `timeout_s`; raises InvalidArgument if it is no number or above MAX_TIMEOUT_S."""
    if not isinstance(timeout_s, int | float) or not timeout_s <= MAX_TIMEOUT_S:
        raise InvalidArgument(
            f"timeout_s is {quoted(str(timeout_s))}; it must be a number of seconds, "
            f"at most {MAX_TIMEOUT_S:,}",
            field="timeout_s",
        )
    return timeout_s


def checked_document(document: Document) -> Document:
    """Returns `document`; raises InvalidArgument if it or one of its pages has a wrong type."""
    if not isinstance(document, Document):
        raise InvalidArgument(
            f"document is {quoted(str(document))}; it must be a Document of hrag.types",
            field="document",
        )
    if not isinstance(document.body, str | bytes):
        for index, page in enumerate(document.body):
            _check_page(page, f"pages[{index}]")
    return document


def _check_page(page: Page, name: str) -> None:
    if not isinstance(page, Page) or not isinstance(page.text, str):
        raise InvalidArgument(
            f"{name} is {quoted(str(page))}; it must be a Page of hrag.types with a text",
            field="pages",
        )


def checked_query(query: SearchQuery, field: str = "query") -> SearchQuery:
    """Returns `query`; raises InvalidArgument if it is no SearchQuery with a text or a vector."""
    if not isinstance(query, SearchQuery):
        raise InvalidArgument(
            f"{field} is {quoted(str(query))}; it must be a SearchQuery of hrag.types", field=field
        )
    if not isinstance(query.query, Iterable | None):
        raise InvalidArgument(
            f"{field} is {quoted(str(query.query))}; it must be a text or a vector", field=field
        )
    return query


def checked_history(history: Iterable[ConversationTurn]) -> tuple[ConversationTurn, ...]:
    """Returns the turns; raises InvalidArgument if one of them is no ConversationTurn with text."""
    turns = tuple(history)
    for number, turn in enumerate(turns):
        if not isinstance(turn, ConversationTurn) or not isinstance(turn.text, str):
            raise InvalidArgument(
                f"history.{number} must be a ConversationTurn of hrag.types with a text",
                field="history",
            )
    return turns


def checked_queries(queries: Iterable[SearchQuery]) -> list[SearchQuery]:
    """Returns `queries` as a list; raises InvalidArgument that names the first invalid query."""
    if not isinstance(queries, Iterable):
        raise InvalidArgument(
            f"queries is {quoted(str(queries))}; it must be a list of SearchQuery", field="queries"
        )
    return [checked_query(query, f"queries.{number}") for number, query in enumerate(queries)]
