"""The calls of a load. They are derived from a seed, so they are equal in every run and process.

Call n is due n / rate seconds after the start, no matter how long earlier calls take. Its tenant,
kind and content are derived from n alone, so processes share a load without communication.
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
    """A load: the rate, the duration, and the content of its calls."""

    rate: float
    """Calls a second."""
    duration_s: float
    tenants: int = 10
    documents: int = 100
    """The documents of each tenant. They are stored before the load, and writes replace them."""
    words: int = 400
    """The words of each document."""
    write_share: float = 0.0
    queries: int = 1000
    """The number of different query texts. The retriever caches their vectors."""
    mode: SearchMode = SearchMode.SMALL_TO_BIG
    limit: int = 5
    seed: int = 1

    @property
    def count(self) -> int:
        """The number of calls."""
        return round(self.rate * self.duration_s)

    def due_s(self, number: int) -> float:
        """Returns when call `number` is due, in seconds since the start."""
        return number / self.rate

    def writes(self, number: int) -> bool:
        """True if call `number` stores a document; otherwise it searches."""
        return self._draw(number).random() < self.write_share

    def call(self, number: int) -> calls.ClientCall:
        """Returns call `number`."""
        draw = self._draw(number)
        is_write = draw.random() < self.write_share
        tenant = tenant_id(draw.randrange(self.tenants))
        if is_write:
            document = self.document(draw.randrange(self.documents), version=number + 1)
            return calls.ingest(tenant, document, "default")
        question = _text(random.Random(f"query {draw.randrange(self.queries)}"), 8)
        return calls.search(SearchQuery(tenant, question, mode=self.mode, limit=self.limit))

    def document(self, number: int, version: int = 0) -> Document:
        """Returns a version of a document. It is equal for all tenants; versions differ in text."""
        draw = random.Random(f"{self.seed} document {number} {version}")
        return Document(_text(draw, self.words), f"document-{number:06d}", title=f"No. {number}")

    def _draw(self, number: int) -> random.Random:
        return random.Random(f"{self.seed} call {number}")


def tenant_id(number: int) -> str:
    """Returns the id of the tenant with this number."""
    return f"load-{number:05d}"


def _text(draw: random.Random, words: int) -> str:
    """Returns `words` random words in sentences of ten words."""
    drawn = draw.choices(_WORDS, k=words)
    sentences = (drawn[start : start + 10] for start in range(0, words, 10))
    return " ".join(f"{' '.join(sentence).capitalize()}." for sentence in sentences)
