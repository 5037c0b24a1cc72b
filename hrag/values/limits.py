"""The limits and defaults that services and clients share."""

from hrag.values.errors import InvalidArgument

MAX_ALIASES = 100  # Per tenant. One reply lists all aliases.
MAX_LEVELS = 8  # Eight doublings of 256 tokens exceed any model's context.
# The minimum for which half a chunk still advances by at least one code point, after its end was
# moved to the boundary of a code point. A code point has at most 4 tokens.
MIN_CHUNK_TOKENS = 32
MAX_CHUNK_TOKENS = 32_768
# With a larger overlap, a chunk would overlap more than its two neighbours on the same level.
MAX_OVERLAP_RATIO = 0.5
MAX_TITLE_BYTES = 1024  # The size of a document's title in UTF-8.
MAX_METADATA_BYTES = 64 * 1024
# Each value is a filter term. Deleting a document may read another database page for each term.
MAX_METADATA_VALUES = 1024
MAX_PAGES = 100_000
# The longest text that common embedding models accept has about this size in UTF-8.
MAX_QUERY_BYTES = 32 * 1024
MAX_LIMIT = 100  # 100 passages of 2,048 tokens fit gRPC's default message of 4 MiB.
DEFAULT_LIMIT = 5
MAX_CANDIDATES = 10_000
MAX_BATCH_SEARCHES = 32
# The size of the text that one call embeds: the queries of a batch, or sentences. On one core, the
# built-in embedder reads about 200 KB of prose per second, and 40 KB of random characters.
MAX_EMBEDDED_BYTES = 64 * 1024
# With 50 candidates, recall on the development sets was 0.6 points lower.
DEFAULT_CANDIDATES = 200
DEFAULT_LEXICAL_WEIGHT = 0.5
DEFAULT_NEIGHBOUR_BONUS = 0.5  # Used in CONTEXT and in hybrid STANDARD searches; else 0 is used.
MAX_NEIGHBOUR_BONUS = 1.0
DEFAULT_CONTEXT_TOKENS = 4096
# The limit of agents' tools. CONTEXT fills its default budget with more than 16 leaves.
DEFAULT_TOOL_PASSAGES = 20
MAX_PER_DOCUMENT = 1000
DEFAULT_MERGE_RATIO = 0.5
DEFAULT_WINDOW_SENTENCES = 3
MAX_WINDOW_SENTENCES = 20
DEFAULT_TOP_SECTIONS = 3
# This limits the time of a search, because it scans every leaf of all chosen sections.
MAX_TOP_SECTIONS = 1000
DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1000
DEFAULT_COLLECTION = "default"


def check_batch(count: int) -> None:
    """Raises InvalidArgument if a batch may not have `count` searches."""
    if not 1 <= count <= MAX_BATCH_SEARCHES:
        problem = f"searches has {count} entries; it must have 1 to {MAX_BATCH_SEARCHES}"
        raise InvalidArgument(problem, field="searches")
