"""A client reads the text of a document in parts.

If the document is replaced meanwhile, the client reads the text again.
"""

import time
from collections.abc import Iterator
from itertools import chain, cycle, repeat
from typing import Any

import pytest

from hrag import errors
from hrag.engine.engine_documents import read_part
from hrag.types import ByteRange
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import types_pb2 as tpb
from hrag.values.reply_limit import ReplyLimit
from tests.support.servers.fake_services import Fake, run_async, run_sync

BOTH_CLIENTS = pytest.mark.parametrize("run", [run_sync, run_async], ids=["sync", "async"])
LONG, SHORT = "a long text", "short"
PART_LIMIT = ReplyLimit(4)


class _ReplacedDocument(Fake):
    """Returns the next version of a document at each call; a reply contains four bytes of it.

    Each call takes `part_s` seconds, so that a test can observe how the deadline approaches.
    """

    def __init__(self, texts: Iterator[str], part_s: float = 0) -> None:
        super().__init__()
        self._texts = texts
        self._part_s = part_s
        self._text, self._sequence = "", 0
        self.remaining_times_s: list[float] = []

    def GetDocument(self, request: Any, context: Any) -> rpb.RetrieverServiceGetDocumentResponse:
        self.remaining_times_s.append(context.time_remaining())
        time.sleep(self._part_s)
        text = next(self._texts)
        if text != self._text:
            self._text, self._sequence = text, self._sequence + 1
        text_range = ByteRange(request.text_range.start, request.text_range.end)
        part, end = read_part(text.encode(), text_range, PART_LIMIT)
        info = tpb.DocumentInfo(sequence=self._sequence, text_bytes=len(text.encode()))
        return rpb.RetrieverServiceGetDocumentResponse(document=info, text=part, text_end=end)


def _text(client: Any) -> Any:
    return client.get_text("t", "d")


@BOTH_CLIENTS
@pytest.mark.parametrize(
    ("before", "after"), [([LONG] * 2, SHORT), ([SHORT], LONG), ([LONG], SHORT[:4])]
)
def test_a_replaced_document_is_read_again(run: Any, before: list[str], after: str) -> None:
    assert run(_ReplacedDocument(chain(before, repeat(after))), _text) == after


@BOTH_CLIENTS
@pytest.mark.parametrize("texts", [[LONG, LONG, SHORT], [LONG, SHORT]], ids=["shorter", "other"])
def test_reading_a_document_that_changes_all_the_time_fails(run: Any, texts: list[str]) -> None:
    fake = _ReplacedDocument(cycle(texts))
    with pytest.raises(errors.DocumentChanged, match=r"'d' was replaced 11 times.*at most 10"):
        run(fake, _text)
    assert len(fake.remaining_times_s) <= 11 * len(texts)


@BOTH_CLIENTS
@pytest.mark.parametrize("field", ["document_id", "text_range"])
def test_other_errors_are_raised(run: Any, field: str) -> None:
    fake = Fake(errors.InvalidArgument("no", field=field))
    with pytest.raises(errors.InvalidArgument, match="no"):
        run(fake, _text)
    assert fake.calls == {"GetDocument": 1}


@BOTH_CLIENTS
def test_all_parts_share_one_deadline(run: Any) -> None:
    fake = _ReplacedDocument(repeat(LONG), part_s=0.2)
    # gRPC sends a longer timeout in whole seconds.
    assert run(fake, _text, timeout_s=10) == LONG
    first, *_, last = fake.remaining_times_s
    assert last < first - 0.3
    with pytest.raises(errors.DeadlineExceeded):
        run(fake, lambda client: client.get_text("t", "d", timeout_s=0.5))
