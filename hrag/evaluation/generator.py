"""Lets a chat model write questions about a collection, for users who have no questions.

Chunks are drawn at random. The model writes a question about a chunk, and copies from the chunk the
words that answer the question. If the copied words are not in the chunk, the reply is rejected.
Each question is written to the file at once. If the file already contains questions, new questions
are appended.

A generated question often has the same words as its chunk. The questions of people have fewer words
in common with the text that answers them. So generated questions favour lexical retrieval. Use them
only to compare systems, and read some of the questions before you trust the figures.
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
from hrag.evaluation.searches import SearchTarget, Show
from hrag.values.chunks import Chunk
from hrag.values.errors import HragError, InvalidArgument
from hrag.values.limits import MAX_PAGE_SIZE

_MAX_REPLY_TOKENS = 1024
_ATTEMPTS_PER_QUESTION = 4
_MIN_CHUNK_TOKENS = 40
# Questions with fewer characters are rejected. A complete question in Chinese may have only 8
# characters.
_MIN_QUESTION_CHARS = 8
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """The result of generating questions.

    `questions` counts all questions in the file, and `added` the questions that this run has added.
    `rejected` counts the chunks without a new question, by reason. `usage` counts the calls of the
    chat model and their tokens.
    """

    questions: int
    added: int
    rejected: Mapping[str, int]
    usage: ChatUsage


@dataclass(frozen=True, slots=True)
class _QuestionLine:
    """One line of the file with the questions, in the format that `question_files` reads."""

    qid: str
    query: str
    answer: str
    gold: tuple[Mapping[str, Any], ...]
    source_chunk: str
    model: str


class _RejectedReply(Exception):
    """Raised if a reply of the model has no usable question. The message is the reason."""


@dataclass(frozen=True, slots=True)
class _DrawnChunks:
    """All chunks of one level of a collection, and the order in which they are drawn.

    Each chunk has an index. The indices start at 0 and continue document after document. `ends`
    contains for each document the index after its last chunk. `order` contains all indices in the
    order of the draw.
    """

    document_ids: Sequence[str]
    ends: Sequence[int]
    level: int
    order: Sequence[int]

    def chunk_ids(self) -> Iterator[str]:
        """Yields the ids of the chunks in the order of the draw."""
        for index in self.order:
            document = bisect_right(self.ends, index)
            index_in_document = index - (self.ends[document - 1] if document else 0)
            yield f"{self.document_ids[document]}#{self.level}.{index_in_document}"


class QuestionGenerator:
    """Writes questions about the chunks of one collection."""

    def __init__(
        self, client: Client, calls: ChatCalls, where: SearchTarget, concurrency: int
    ) -> None:
        self._client = client
        self._calls = calls
        self._where = where
        self._concurrency = concurrency
        self._prompt = prompt_template("question_prompt.txt")

    def generate(self, path: Path, count: int, seed: int, show: Show) -> GenerationResult:
        """Adds questions to the file at `path` until the file has `count` questions.

        Stops earlier in two cases: every chunk was used, or this run has used n *
        `_ATTEMPTS_PER_QUESTION` chunks, where n is the count of questions that were missing at the
        start. `show` is called after each chunk with three counts: the questions in the file,
        `count`, and the rejected chunks. Raises the client's errors, and the chat model's error if
        the first calls all fail. Raises OSError, which names the file, if the file cannot be
        written.
        """
        existing = list(json_rows(path)) if path.exists() else []
        known_questions = {row.text("query").casefold() for row in existing}
        used = {row.text("source_chunk", default="") for row in existing}
        chunks = self._draw_chunks(seed)
        unused = iter([chunk_id for chunk_id in chunks.chunk_ids() if chunk_id not in used])
        attempts = _ATTEMPTS_PER_QUESTION * max(0, count - len(existing))
        rejected: Counter[str] = Counter()
        added = 0
        with RowWriter(path) as file:
            while (missing := count - len(existing) - added) > 0 and attempts > 0:
                drawn = list(islice(unused, min(missing, attempts, 4 * self._concurrency)))
                if not drawn:
                    break
                attempts -= len(drawn)
                for written in in_threads(self._attempt, drawn, self._concurrency):
                    if isinstance(written, str):
                        rejected[written] += 1
                    elif written.query.casefold() in known_questions:
                        rejected["the same question again"] += 1
                    else:
                        known_questions.add(written.query.casefold())
                        file.write(asdict(written))
                        added += 1
                    show(len(existing) + added, count, rejected.total())
        return GenerationResult(len(existing) + added, added, rejected, self._calls.usage)

    def _draw_chunks(self, seed: int) -> _DrawnChunks:
        where = self._where
        tree = self._client.get_collection(where.tenant_id, where.collection).settings.tree
        # The parents of leaves are used, because a leaf often has too little text for a question
        # that can be understood without context.
        level = min(tree.embedding_level + 1, tree.top_level)
        counts = dict(self._chunk_counts(level))
        if not counts:
            raise InvalidArgument(
                f"collection {where.collection} has no documents to ask about", field="collection"
            )
        ends = list(accumulate(counts.values()))
        order = np.random.default_rng(seed).permutation(ends[-1])
        return _DrawnChunks(list(counts), ends, level, [int(number) for number in order])

    def _chunk_counts(self, level: int) -> Iterator[tuple[str, int]]:
        """Yields the id of each document of the collection, and its count of chunks at `level`."""
        where, token = self._where, ""
        while True:
            page = self._client.list_documents(
                where.tenant_id,
                collection=where.collection,
                page_size=MAX_PAGE_SIZE,
                page_token=token,
            )
            yield from ((info.document_id, info.chunks_per_level[level]) for info in page.items)
            token = page.next_page_token
            if not token:
                return

    def _attempt(self, chunk_id: str) -> _QuestionLine | str:
        """Lets the model write a question about the chunk, and returns the question.

        If there is no usable question, returns the reason as a text.
        """
        where = self._where
        try:
            node = self._client.get_chunk(where.tenant_id, chunk_id, collection=where.collection)
            if node.chunk.token_count < _MIN_CHUNK_TOKENS:
                return "the chunk is too short"
            prompt = self._prompt.substitute(title=node.chunk.title, text=node.chunk.content)
            reply = self._calls.ask(prompt, _MAX_REPLY_TOKENS).text
            return _question_from(reply, node.chunk, self._calls.usage.model)
        except _RejectedReply as error:
            return str(error)
        except HragError as error:
            self._calls.check_reachable(error)
            return f"the call failed ({type(error).__name__})"


def _question_from(reply: str, chunk: Chunk, model: str) -> _QuestionLine:
    """Returns the question in a reply; raises _RejectedReply if it is missing or not usable."""
    fields = _fields(reply)
    question, quote = fields["question"], fields["quote"]
    if not question:
        raise _RejectedReply("no question in the reply")
    if len(question) < _MIN_QUESTION_CHARS:
        raise _RejectedReply("the question is too short")
    if not quote:
        raise _RejectedReply("no quote in the reply")
    match = quote_pattern(quote).search(chunk.content)
    if match is None:
        raise _RejectedReply("the quote is not in the chunk")
    start = chunk.span.char_start
    gold = {
        "doc_id": chunk.document_id,
        "start": start + match.start(),
        "end": start + match.end(),
    }
    digest = hashlib.sha256(chunk.chunk_id.encode()).hexdigest()[:12]
    qid = f"generated-{digest}"
    return _QuestionLine(qid, question, fields["answer"], (gold,), chunk.chunk_id, model)


def _fields(reply: str) -> dict[str, str]:
    """Returns the fields `question`, `quote` and `answer` of the JSON object in a reply.

    A missing field is returned as an empty text. Raises _RejectedReply if the reply has no JSON
    object, or if a field contains a lone surrogate (half of a pair of UTF-16 codes).
    """
    match = _OBJECT.search(reply)
    try:
        values = json.loads(match[0], strict=False) if match else None
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise _RejectedReply("no JSON in the reply")
    texts = {name: str(values.get(name) or "").strip() for name in ("question", "quote", "answer")}
    if any(map(has_lone_surrogate, texts.values())):
        raise _RejectedReply("a lone surrogate in the reply")
    return texts
