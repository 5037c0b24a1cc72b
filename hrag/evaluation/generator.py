"""Questions written by a chat model from the collection, for those who have none.

Chunks are drawn at random; the model writes a question about one and copies the words that
answer it, which are looked up in the chunk: what it did not copy is rejected. Each question is
written to the file as soon as there is one, and a file that has some already is continued.
Such questions share words with their source more often than people's do, which favours
lexical retrieval: compare systems with them, and read a few before trusting the figures.
"""

import hashlib
import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np

from hrag.client import Client
from hrag.evaluation.chat_calls import ChatCalls, ChatUsage, in_threads, prompt_template
from hrag.evaluation.json_lines import RowWriter, has_lone_surrogate, json_rows
from hrag.evaluation.retrieved import quote_pattern
from hrag.evaluation.searches import Searched, Show
from hrag.values.chunks import Chunk
from hrag.values.errors import HragError, InvalidArgument
from hrag.values.limits import MAX_PAGE_SIZE

_MAX_REPLY_TOKENS = 1024
_ATTEMPTS_PER_QUESTION = 4
_MIN_CHUNK_TOKENS = 40
_MIN_QUESTION_CHARS = 8  # A Chinese question may be as short.
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Generated:
    """What became of it: questions in the file, replies rejected by reason, and the cost."""

    questions: int
    added: int
    rejected: Mapping[str, int]
    usage: ChatUsage


@dataclass(frozen=True, slots=True)
class _Written:
    """A line of the file; the format is that of `question_files`."""

    qid: str
    query: str
    answer: str
    gold: tuple[Mapping[str, Any], ...]
    source_chunk: str
    model: str


class _Rejected(Exception):
    """A reply that makes no question; the message is the reason."""


@dataclass(frozen=True, slots=True)
class _Source:
    """All chunks of one level of a collection, in the order in which they are drawn."""

    document_ids: Sequence[str]
    ends: Sequence[int]  # Of each document's chunks, in a row of all.
    level: int
    order: Sequence[int]

    def chunk_ids(self) -> Iterator[str]:
        for number in self.order:
            document = bisect_right(self.ends, number)
            index = number - (self.ends[document - 1] if document else 0)
            yield f"{self.document_ids[document]}#{self.level}.{index}"


class QuestionGenerator:
    """Writes questions about the chunks of one collection."""

    def __init__(self, client: Client, calls: ChatCalls, where: Searched, concurrency: int) -> None:
        self._client = client
        self._calls = calls
        self._where = where
        self._concurrency = concurrency
        self._prompt = prompt_template("question_prompt.txt")

    def generate(self, path: Path, count: int, seed: int, show: Show) -> Generated:
        """Adds questions to the file until it has `count`, or chunks or attempts run out.

        Raises what the client raises, the chat model's error if the first calls all fail, and
        OSError, which names the file, if it cannot be written.
        """
        existing = list(json_rows(path)) if path.exists() else []
        asked = {row.text("query").casefold() for row in existing}
        used = {row.text("source_chunk", default="") for row in existing}
        source = self._source(seed)
        left = iter([each for each in source.chunk_ids() if each not in used])
        attempts = _ATTEMPTS_PER_QUESTION * max(0, count - len(existing))
        rejected: Counter[str] = Counter()
        added = 0
        with RowWriter(path) as file:
            while (missing := count - len(existing) - added) > 0 and attempts > 0:
                drawn = list(islice(left, min(missing, attempts, 4 * self._concurrency)))
                if not drawn:
                    break
                attempts -= len(drawn)
                for written in in_threads(self._attempt, drawn, self._concurrency):
                    if isinstance(written, str):
                        rejected[written] += 1
                    elif written.query.casefold() in asked:
                        rejected["the same question again"] += 1
                    else:
                        asked.add(written.query.casefold())
                        file.write(asdict(written))
                        added += 1
                    show(len(existing) + added, count, rejected.total())
        return Generated(len(existing) + added, added, rejected, self._calls.usage)

    def _source(self, seed: int) -> _Source:
        where = self._where
        tree = self._client.get_collection(where.tenant_id, where.collection).settings.tree
        # The parents of the leaves have enough text for a question that stands alone.
        level = min(tree.embedding_level + 1, tree.top_level)
        counts = dict(self._chunk_counts(level))
        if not counts:
            raise InvalidArgument(
                f"collection {where.collection} has no documents to ask about", field="collection"
            )
        ends = list(accumulate(counts.values()))
        order = np.random.default_rng(seed).permutation(ends[-1])
        return _Source(list(counts), ends, level, [int(each) for each in order])

    def _chunk_counts(self, level: int) -> Iterator[tuple[str, int]]:
        """Documents with their number of chunks at the level."""
        where, token = self._where, ""
        while True:
            page = self._client.list_documents(
                where.tenant_id,
                collection=where.collection,
                page_size=MAX_PAGE_SIZE,
                page_token=token,
            )
            yield from ((each.document_id, each.chunks_per_level[level]) for each in page.items)
            token = page.next_page_token
            if not token:
                return

    def _attempt(self, chunk_id: str) -> _Written | str:
        """A question about the chunk, or the reason why there is none."""
        where = self._where
        try:
            node = self._client.get_chunk(where.tenant_id, chunk_id, collection=where.collection)
            if node.chunk.token_count < _MIN_CHUNK_TOKENS:
                return "the chunk is too short"
            prompt = self._prompt.substitute(title=node.chunk.title, text=node.chunk.content)
            reply = self._calls.ask(prompt, _MAX_REPLY_TOKENS)
            return _written(reply, node.chunk, self._calls.usage.model)
        except _Rejected as error:
            return str(error)
        except HragError as error:
            self._calls.check_reachable(error)
            return f"the call failed ({type(error).__name__})"


def _written(reply: str, chunk: Chunk, model: str) -> _Written:
    """The question of a reply. Raises _Rejected."""
    fields = _fields(reply)
    question, quote = fields["question"], fields["quote"]
    if not question:
        raise _Rejected("nothing to ask about the chunk")
    if len(question) < _MIN_QUESTION_CHARS:
        raise _Rejected("the question is too short")
    if not quote:
        raise _Rejected("no quote in the reply")
    found = quote_pattern(quote).search(chunk.content)
    if found is None:
        raise _Rejected("the quote is not in the chunk")
    start = chunk.span.char_start
    gold = {
        "doc_id": chunk.document_id,
        "start": start + found.start(),
        "end": start + found.end(),
    }
    digest = hashlib.sha256(chunk.chunk_id.encode()).hexdigest()[:12]
    qid = f"generated-{digest}"
    return _Written(qid, question, fields["answer"], (gold,), chunk.chunk_id, model)


def _fields(reply: str) -> dict[str, str]:
    """`question`, `quote` and `answer` of the JSON object in a reply; empty if missing."""
    found = _OBJECT.search(reply)
    try:
        values = json.loads(found[0], strict=False) if found else None
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise _Rejected("no JSON in the reply")
    texts = {name: str(values.get(name) or "").strip() for name in ("question", "quote", "answer")}
    if any(map(has_lone_surrogate, texts.values())):
        raise _Rejected("a lone surrogate in the reply")
    return texts
