"""Work generates the calls of a load: due times, tenants and contents."""

from collections import Counter

import pytest

from benchmarks.load import body
from benchmarks.load.work import Work
from hrag.v1 import indexer_pb2, retriever_pb2


def test_calls_are_due_at_a_fixed_rate():
    work = Work(rate=50.0, duration_s=2.0)
    assert work.count == 100
    assert [work.due_s(number) for number in (0, 1, 50, 99)] == [0.0, 0.02, 1.0, 1.98]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_writes_have_the_configured_share_and_all_tenants_get_calls(share):
    work = Work(rate=1000.0, duration_s=2.0, tenants=4, documents=5, write_share=share)
    calls = [work.call(number) for number in range(work.count)]
    written = sum(call.service == "indexer" for call in calls)
    assert written / work.count == pytest.approx(share, abs=0.05)
    for number, call in enumerate(calls):
        assert (call.service == "indexer") == work.writes(number)
    calls_by_tenant = Counter(call.request.tenant_id for call in calls)
    assert set(calls_by_tenant) == {f"load-{number:05d}" for number in range(4)}
    assert min(calls_by_tenant.values()) > 0.2 * work.count


def test_calls_are_the_same_for_the_same_seed_and_differ_for_another_seed():
    work = Work(rate=10.0, duration_s=1.0, write_share=0.5)
    again = Work(rate=10.0, duration_s=1.0, write_share=0.5)
    other = Work(rate=10.0, duration_s=1.0, write_share=0.5, seed=2)
    requests = [work.call(number).request for number in range(10)]
    assert requests == [again.call(number).request for number in range(10)]
    assert requests != [other.call(number).request for number in range(10)]


def test_searches_have_no_more_different_texts_than_configured():
    work = Work(rate=1000.0, duration_s=1.0, queries=7)
    assert len({work.call(number).request.text for number in range(work.count)}) == 7


def test_a_write_replaces_a_stored_document_with_another_text():
    work = Work(rate=10.0, duration_s=1.0, documents=3, words=50, write_share=1.0)
    filled = {work.document(number).document_id: work.document(number) for number in range(3)}
    request = work.call(0).request
    assert isinstance(request, indexer_pb2.IngestDocumentRequest)
    assert request.document.text != filled[request.document.document_id].body
    assert len(request.document.text.split()) == 50


def test_a_body_is_a_grpc_message_with_its_length_prefix():
    work = Work(rate=1.0, duration_s=1.0)
    data = body.framed(body.search(work))
    assert data[0] == 0
    assert int.from_bytes(data[1:5], "big") == len(data) - 5
    request = retriever_pb2.SearchRequest.FromString(data[5:])
    assert request.tenant_id == "load-00000"
    assert request.text == work.call(0).request.text
