"""Limits and defaults that services and clients share."""

from hrag.values.errors import InvalidArgument

MAX_ALIASES = 100  # Of a tenant; one reply lists them all.
MAX_LEVELS = 8  # Eight doublings of 256 tokens exceed any model's context.
MIN_CHUNK_TOKENS = 32  # Half of it, snapped, still moves on by a code point: at most 4 tokens.
MAX_CHUNK_TOKENS = 32_768
MAX_OVERLAP_RATIO = 0.5  # Beyond it, chunks of one level overlap more than pairwise.
MAX_TITLE_BYTES = 1024  # Of a document's title, in UTF-8.
MAX_METADATA_BYTES = 64 * 1024
MAX_METADATA_VALUES = 1024  # Each is a term, which a deletion finds on a page of its own.
MAX_PAGES = 100_000
MAX_QUERY_BYTES = 32 * 1024  # The longest input of common embedding models, in bytes.
MAX_LIMIT = 100  # 100 passages of 2,048 tokens fit gRPC's default message of 4 MiB.
DEFAULT_LIMIT = 5
MAX_CANDIDATES = 10_000
MAX_BATCH_SEARCHES = 32
# The text that one call embeds: queries of a batch, or sentences. The built-in embedder reads
# some 200 KB of prose a second on one core, and 40 KB of random characters.
MAX_EMBEDDED_BYTES = 64 * 1024
# Fifty lost 0.6 points of recall on the development sets.
DEFAULT_CANDIDATES = 200
DEFAULT_LEXICAL_WEIGHT = 0.5
DEFAULT_NEIGHBOUR_BONUS = 0.5  # In CONTEXT and hybrid STANDARD; else 0.
MAX_NEIGHBOUR_BONUS = 1.0
DEFAULT_CONTEXT_TOKENS = 4096
DEFAULT_TOOL_PASSAGES = 20  # Agents' tools; more than 16 leaves fill CONTEXT's budget.
MAX_PER_DOCUMENT = 1000
DEFAULT_MERGE_RATIO = 0.5
DEFAULT_WINDOW_SENTENCES = 3
MAX_WINDOW_SENTENCES = 20
DEFAULT_TOP_SECTIONS = 3
MAX_TOP_SECTIONS = 1000  # Their leaves are compared one by one.
DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1000
DEFAULT_COLLECTION = "default"


def check_batch(count: int) -> None:
    """Raises InvalidArgument unless a batch may have `count` searches."""
    if not 1 <= count <= MAX_BATCH_SEARCHES:
        problem = f"searches has {count} entries; it must have 1 to {MAX_BATCH_SEARCHES}"
        raise InvalidArgument(problem, field="searches")
