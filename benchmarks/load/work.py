"""Which call comes when: drawn from a seed, the same on every run and in every process.

Calls are numbered; call n is due n / rate seconds after the beginning, whatever became of
those before it. Which tenant it is for, whether it writes and what it says follow from
its number alone, so several processes may share one load without talking.
"""

import random
from dataclasses import dataclass

from hrag.client import calls
from hrag.types import Document, SearchMode, SearchQuery

_VOCABULARY = (
    "harbour sunrise coast grain timber salt letters clerks barrels lamps evening rain "
    "bridge engine signal ledger voyage captain cargo warehouse tariff weather tide anchor"
)
_WORDS = _VOCABULARY.split()


@dataclass(frozen=True, slots=True)
class Work:
    """A load: how many calls, how fast, of what kind."""

    rate: float
    """Calls a second."""
    duration_s: float
    tenants: int = 10
    documents: int = 100
    """Of each tenant, before the load; its writes replace them in turn."""
    words: int = 400
    """Of each document."""
    write_share: float = 0.0
    queries: int = 1000
    """Different texts that are asked; the retriever remembers their vectors."""
    mode: SearchMode = SearchMode.SMALL_TO_BIG
    limit: int = 5
    seed: int = 1

    @property
    def count(self) -> int:
        """How many calls it has."""
        return round(self.rate * self.duration_s)

    def due_s(self, number: int) -> float:
        """When call `number` is to be sent, in seconds from the beginning."""
        return number / self.rate

    def writes(self, number: int) -> bool:
        """Whether call `number` stores a document; else it searches."""
        return self._draw(number).random() < self.write_share

    def call(self, number: int) -> calls.Call:
        """Call `number` itself."""
        draw = self._draw(number)
        is_write = draw.random() < self.write_share
        tenant = tenant_id(draw.randrange(self.tenants))
        if is_write:
            document = self.document(draw.randrange(self.documents), version=number + 1)
            return calls.ingest(tenant, document, "default")
        question = _text(random.Random(f"query {draw.randrange(self.queries)}"), 8)
        return calls.search(SearchQuery(tenant, question, mode=self.mode, limit=self.limit))

    def document(self, number: int, version: int = 0) -> Document:
        """A document of any tenant; each version says something else."""
        draw = random.Random(f"{self.seed} document {number} {version}")
        return Document(_text(draw, self.words), f"document-{number:06d}", title=f"No. {number}")

    def _draw(self, number: int) -> random.Random:
        return random.Random(f"{self.seed} call {number}")


def tenant_id(number: int) -> str:
    return f"load-{number:05d}"


def _text(draw: random.Random, words: int) -> str:
    """Sentences of ten words."""
    drawn = draw.choices(_WORDS, k=words)
    sentences = (drawn[start : start + 10] for start in range(0, words, 10))
    return " ".join(f"{' '.join(each).capitalize()}." for each in sentences)
