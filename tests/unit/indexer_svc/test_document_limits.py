"""A document with too many leaves is refused before anything is embedded."""

from typing import Any

import pytest

from hrag.config import IndexerSettings
from hrag.engine.common import validation
from hrag.errors import TooLarge
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import Document, TreeSettings
from hrag.values.deadline import NEVER
from hrag.values.tree import ParsedText
from indexer_svc import document_limits
from indexer_svc.chunker import build_tree
from indexer_svc.ingest_pipeline import Defaults, Pipeline
from tests.conftest import Engine

TEXT = "The cat sat on the mat. " * 40
DIMENSION = 16
LEAVES = build_tree(ParsedText(TEXT), TreeSettings((32, 64), 0.5)).counts[0]
VECTOR_BYTES = LEAVES * DIMENSION * 4


@pytest.fixture
def pipeline(engine: Engine) -> Pipeline:
    """A pipeline that creates collections with overlapping leaves."""
    defaults = Defaults(TreeSettings((32, 64), 0.5), 100_000)
    return Pipeline(engine.writer, HashEmbedder(DIMENSION), defaults)


@pytest.mark.parametrize(
    ("module", "limit", "value", "message"),
    [
        (validation, "MAX_LEAVES", LEAVES, f"{LEAVES} leaves; at most {LEAVES - 1} are"),
        (
            document_limits,
            "MAX_VECTOR_BYTES",
            VECTOR_BYTES,
            f"{VECTOR_BYTES:,} bytes in total; at most {VECTOR_BYTES - 1:,} are allowed, so split",
        ),
    ],
)
def test_a_document_with_too_many_leaves_is_refused_before_it_is_embedded(
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    limit: str,
    value: int,
    message: str,
) -> None:
    monkeypatch.setattr(module, limit, value)
    pipeline.ingest("t", "default", Document(TEXT, "d"), NEVER)
    monkeypatch.setattr(module, limit, value - 1)
    monkeypatch.setattr(HashEmbedder, "embed", None)
    with pytest.raises(TooLarge, match=message):
        pipeline.ingest("t", "default", Document(TEXT, "other"), NEVER)


def test_with_default_settings_no_text_exceeds_the_limit_of_vector_bytes() -> None:
    """No other text has more leaves per byte: short sentences of characters of four tokens."""
    text = "".join(chr(0x10000 + 16 * n) + (". " if n % 12 == 0 else "") for n in range(20_000))
    leaves_per_byte = build_tree(ParsedText(text), TreeSettings()).counts[0] / len(text.encode())
    leaves = leaves_per_byte * IndexerSettings().max_document_bytes
    assert leaves * 3072 * 4 < document_limits.MAX_VECTOR_BYTES
