"""The limits and defaults that services and clients share."""

from collections.abc import Mapping
from typing import Any

from hrag.values.errors import InvalidArgument, TooLarge

MAX_ALIASES = 100  # A tenant has at most this many aliases, because one reply lists all of them.
# A tree has at most this many levels. If the chunks of level 0 have 256 tokens, and each level's
# chunks are twice as large as those of the level below, the chunks of the eighth level have
# MAX_CHUNK_TOKENS tokens.
MAX_LEVELS = 8
# A level's chunk size must be at least this many tokens, so that each chunk begins at least one
# code point after the chunk before it. With smaller chunks, two chunks might begin at the same code
# point, for two reasons. Half of a chunk's tokens may be in the next chunk too. And a boundary that
# would lie inside a code point is moved to the start or the end of this code point, which has at
# most 4 tokens.
MIN_CHUNK_TOKENS = 32
MAX_CHUNK_TOKENS = 32_768
# The largest `overlap_ratio`: the part of a chunk's tokens that the next chunk contains too. With
# more than half, a chunk would overlap not only its neighbours, but also chunks farther away.
MAX_OVERLAP_RATIO = 0.5
MAX_TITLE_BYTES = 1024  # The largest title, in bytes of UTF-8.
MAX_SOURCE_BYTES = 2048  # The largest source, in bytes of UTF-8.
MAX_METADATA_BYTES = 64 * 1024
# The metadata of a document has at most this many values. Each value is an entry of the filter
# index, and deleting the document may read a separate database page for each entry.
MAX_METADATA_VALUES = 1024
# The largest size of a query, in bytes of UTF-8. It is about the size of the longest text that
# common embedding models accept.
MAX_QUERY_BYTES = 32 * 1024
# A search returns at most this many passages. 100 passages of 2,048 tokens fit into one gRPC
# message, whose default limit is 4 MiB.
MAX_LIMIT = 100
DEFAULT_LIMIT = 5
MAX_CANDIDATES = 10_000
MAX_BATCH_SEARCHES = 32
# After this many searches of a batch were refused because their passages do not fit into the reply,
# its further searches are refused without being run. So the work for refused replies is bounded.
MAX_BATCH_REFUSALS = 2
# A request in JSON has at most this many members of objects and elements of arrays, with those of
# inner ones. Converting so many takes about 0.2 s. A filter of 10,000 values has 20,000 of them,
# and a document of 30,000 pages has 90,000.
MAX_JSON_VALUES = 100_000
# A request in JSON has at most this many levels of objects and arrays. A filter that is nested 16
# deep needs 50 levels.
MAX_JSON_DEPTH = 128
# One call embeds at most this many bytes of text, for example the queries of a batch or the
# sentences of leaves. On one core, the built-in embedder reads about 200 KB of prose or 40 KB of
# random characters per second, so one call needs one core for at most about two seconds.
MAX_EMBEDDED_BYTES = 64 * 1024
# A statement of an answer cites at most this many passages, and the statements of an answer have at
# most so many citations together. Texts with more citations are of no use to a reader. They are
# written by a model that repeats itself, perhaps because a document leads it.
MAX_STATEMENT_CITATIONS = 20
MAX_ANSWER_CITATIONS = 1000
# The largest text of an answer, in bytes of UTF-8. The longest text that HRAG_ANSWER_MAX_TOKENS
# allows, 131,072 tokens, has about this size.
MAX_ANSWER_BYTES = 512 * 1024
# A question comes with at most this many earlier turns of its conversation, and with at most this
# many bytes of their texts together. The turns are part of the prompt. 16 KiB of English are about
# 4,000 tokens, half as many as the passages of an answer have by default.
MAX_HISTORY_TURNS = 32
MAX_HISTORY_BYTES = 16 * 1024
# The headers of a call have at most this many pairs of metadata. Clients and proxies send about 10.
MAX_CALL_METADATA_PAIRS = 128
# Each source of a search (the lexical and the vector search) finds this many leaves by default.
# With 50 leaves instead of 200, recall on the data sets used for development was 0.6 percentage
# points lower.
DEFAULT_CANDIDATES = 200
DEFAULT_LEXICAL_WEIGHT = 0.5
# The default of `neighbour_bonus` in CONTEXT searches, and in STANDARD and SENTENCE_WINDOW searches
# with HYBRID; in all other searches the default is 0. The score of a leaf is raised by
# `neighbour_bonus` times the highest score among three leaves: the leaf itself, the leaf before it,
# and the leaf after it.
DEFAULT_NEIGHBOUR_BONUS = 0.5
MAX_NEIGHBOUR_BONUS = 1.0
DEFAULT_CONTEXT_TOKENS = 4096
# The search tools for agents return at most this many passages by default. These tools search in
# CONTEXT mode. The default token budget of this mode, 4,096 tokens, has space for 16 leaves of 256
# tokens, or for a few more leaves if some leaves are shorter.
DEFAULT_TOOL_PASSAGES = 20
MAX_PER_DOCUMENT = 1000
DEFAULT_MERGE_RATIO = 0.5
DEFAULT_WINDOW_SENTENCES = 3
MAX_WINDOW_SENTENCES = 20
# SUMMARY_FIRST chooses at most this many sections. The search scans every leaf of the chosen
# sections, so this limits the time of the search.
MAX_TOP_SECTIONS = 1000
DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1000
DEFAULT_COLLECTION = "default"


def check_batch(count: int) -> None:
    """Raises InvalidArgument if `count`, the number of searches in a batch, is not allowed."""
    if not 1 <= count <= MAX_BATCH_SEARCHES:
        problem = f"searches has {count} entries; it must have 1 to {MAX_BATCH_SEARCHES}"
        raise InvalidArgument(problem, field="searches")


def check_metadata_values(metadata: Mapping[str, Any]) -> None:
    """Raises TooLarge if a document's metadata has more than MAX_METADATA_VALUES values."""
    count = value_count(metadata)
    if count > MAX_METADATA_VALUES:
        problem = f"metadata has {count:,} values; at most {MAX_METADATA_VALUES:,} are allowed"
        raise TooLarge(problem, field="metadata")


def value_count(value: Any) -> int:
    """Returns the count of JSON values in `value`, at any depth.

    An object inside `value` counts as one value, in addition to the values that the object
    contains. For a list, only its items are counted, not the list itself.
    """
    if isinstance(value, Mapping):
        return sum(isinstance(item, Mapping) + value_count(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(isinstance(item, Mapping) + value_count(item) for item in value)
    return 1
