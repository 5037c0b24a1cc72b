"""Texts that differ in one exact term, for example a code, are found by that term every time."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from hrag.client import Client
from hrag.types import Document, Retrieval, SearchMode, SearchQuery, SearchResult
from tests.support.servers.processes import Running

# A BatchSearch call may have at most this many searches.
_BATCH = 32
_DIGITS = "零一二三四五六七八九"


@dataclass(frozen=True)
class Case:
    """Texts that differ in one exact term, and a question with the exact term of each text."""

    texts: tuple[str, ...]
    questions: tuple[str, ...]


def _case(text: str, question: str, terms: list[str]) -> Case:
    return Case(
        tuple(text.format(term) for term in terms), tuple(question.format(term) for term in terms)
    )


def _chinese(number: int) -> str:
    """Returns a number from 100 to 999 in Chinese numerals: 187 is 一百八十七."""
    hundreds, tens, units = number // 100, number // 10 % 10, number % 10
    middle = f"{_DIGITS[tens]}十" if tens else "零" if units else ""
    return f"{_DIGITS[hundreds]}百{middle}{_DIGITS[units] if units else ''}"


_REASONS = (
    *("the disk is full", "the key has expired", "the file is locked", "a peer has left"),
    *("the clock is wrong", "the cache is cold", "the name is taken"),
)
ERRORS = Case(
    tuple(f"Error E-{4000 + n}: {_REASONS[n % len(_REASONS)]}, see the log." for n in range(293)),
    tuple(f"What does error E-{4000 + n} mean?" for n in range(293)),
)
_NUMBERS = range(1180, 1220)
CASES = {
    "article in Arabic numerals": _case(
        "根据本办法第{}条的规定，申请人应当在期限内提交材料。",
        "第{}条规定了什么？",
        [*map(str, _NUMBERS)],
    ),
    "article in Chinese numerals": _case(
        "第{}条　当事人应当按照约定全面履行自己的义务。",
        "民法典第{}条的内容是什么？",
        [*map(_chinese, range(180, 220))],
    ),
    "product code": _case(
        "型号 AB-{}-X 的保修期为两年，不包括电池。",
        "AB-{}-X 的保修期是多久？",
        [*map(str, _NUMBERS)],
    ),
    "e-mail address": _case(
        "有关报销的问题请联系 user{}@example.org 处理。",
        "谁是 user{}@example.org ？",
        [*map(str, _NUMBERS)],
    ),
    "path": _case(
        "服务的配置文件在 /opt/app{}/conf.d/main.yaml，修改后重启。",
        "/opt/app{}/conf.d/main.yaml 是做什么的？",
        [*map(str, _NUMBERS)],
    ),
    "version": _case(
        "Python {} 修复了导入模块时的一个错误。",
        "Python {} 修复了什么？",
        [f"3.{minor}.{patch}" for minor in (1, 10, 11, 12) for patch in (0, 1, 7, 11, 17)],
    ),
    "language": _case(
        "用 {} 编写的程序编译起来有快有慢。",
        "{} 的程序编译快吗？",
        ["C++", "C#", "C", "F#", "F", "R", "Rust"],
    ),
    "code inside Chinese": _case(
        "错误代码E-{}表示内存不足，请重启设备。",
        "出现E-{}怎么办？",
        [*map(str, _NUMBERS)],
    ),
}


def _stored(client: Client, tenant: str, case: Case) -> None:
    documents = (Document(text, f"d{number}") for number, text in enumerate(case.texts))
    assert all(
        not isinstance(result, Exception) for result in client.ingest_many(tenant, documents)
    )


def _firsts(client: Client, tenant: str, case: Case, retrieval: Retrieval) -> Iterator[str]:
    """Yields for each question the id of the document that its search returns first."""
    queries = [
        SearchQuery(tenant, question, mode=SearchMode.STANDARD, limit=1, retrieval=retrieval)
        for question in case.questions
    ]
    for start in range(0, len(queries), _BATCH):
        for result in client.batch_search(queries[start : start + _BATCH]):
            assert isinstance(result, SearchResult)
            assert (result.retrieval, result.fallback) == (retrieval, "")
            yield result.passages[0].chunk.document_id


def _assert_right_texts_first(
    services: Running, tenant: str, case: Case, retrieval: Retrieval
) -> None:
    _stored(services.client, tenant, case)
    firsts = _firsts(services.client, tenant, case, retrieval)
    wrong = {
        question: document_id
        for number, (question, document_id) in enumerate(zip(case.questions, firsts, strict=True))
        if document_id != f"d{number}"
    }
    assert wrong == {}


def test_each_of_293_error_codes_is_found(services: Running, tenant: str) -> None:
    """The test uses lexical retrieval, because pseudo-embeddings have no meaning."""
    _assert_right_texts_first(services, tenant, ERRORS, Retrieval.LEXICAL)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_terms_in_chinese_and_mixed_text_are_found(
    services: Running, tenant: str, case: Case
) -> None:
    _assert_right_texts_first(services, tenant, case, Retrieval.LEXICAL)


@pytest.mark.slow
@pytest.mark.parametrize("case", [ERRORS, *CASES.values()], ids=["error code", *CASES])
def test_vectors_do_not_hide_exact_terms(
    builtin_services: Running, tenant: str, case: Case
) -> None:
    """Hybrid retrieval with the built-in embedder, which are the defaults, finds exact terms."""
    _assert_right_texts_first(builtin_services, tenant, case, Retrieval.HYBRID)
