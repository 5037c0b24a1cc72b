"""Typed settings from environment variables, which are read and validated once at start.

Each service has one frozen settings class; nothing reads the environment later. An invalid value
raises SettingsError, whose message names the variable, the value and the rule.
"""

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from hrag.host.addresses import ADDRESS_RULE, MAX_PORT, is_address
from hrag.host.cores import usable_cores
from hrag.host.dsn import check_dsn
from hrag.text.analysis import DEFAULT_LANGUAGE, LANGUAGES
from hrag.values.collections import SummaryUnit, TreeSettings
from hrag.values.document_limits import MAX_PAGES
from hrag.values.errors import InvalidArgument
from hrag.values.limits import MAX_CHUNK_TOKENS, MAX_LIMIT, MIN_CHUNK_TOKENS
from hrag.values.quotas import Quota

KIB = 1024
MIB = 1024 * KIB

# The default of HRAG_THREADS. A retriever whose searches wait for no remote model has a lower
# default. Answers wait for a chat model, but in threads of their own.
_THREADS = 16
# Without a remote model and without PostgreSQL, a retriever's calls only compute. For such a
# retriever, the default of HRAG_THREADS is the count of cores, but at least 2 and at most 4: more
# threads would only wait for the interpreter lock. On two cores with 16 callers, two threads
# reached 554 hybrid searches per second, and four threads reached 464.
_MIN_COMPUTING_THREADS, _MAX_COMPUTING_THREADS = 2, 4
# The calls of a retriever with PostgreSQL wait for the database, so by default the retriever has
# two more threads than cores.
_THREADS_BEYOND_CORES = 2
# The default of HRAG_POSTGRES_CONNECTIONS: one connection for each of the 16 calls that may run at
# the same time, and four connections for maintenance and health checks.
_POSTGRES_CONNECTIONS = 20
# The default of HRAG_PARSERS, the count of parser processes, is never higher than this. Each
# process may use HRAG_PARSER_MEMORY_BYTES, so this maximum limits the memory of all processes
# together.
_PARSERS = 4

# By default, a SMALL_TO_BIG search returns chunks of this level. With the default levels, these
# chunks have at most 1,024 tokens.
DEFAULT_RETURN_LEVEL = 2
DEFAULT_CONCURRENT_ANSWERS = 8
# A collection in PostgreSQL with more leaves than this gets a home: the set of tables that stores
# one large collection, with an HNSW index. A smaller collection needs no index, because PostgreSQL
# scans 10,000 leaves in a few milliseconds.
DEFAULT_HOME_LEAVES = 10_000
# By default, a search sends this many passages to the reranker.
DEFAULT_RERANK_TOP = 32
# By default, a search in CONTEXT sends this many leaves to the reranker. A leaf is smaller than
# most passages, so more of them are needed to fill the token budget.
DEFAULT_RERANK_LEAVES = 50
# The maximum count of texts in one request to an embedding endpoint, and their maximum size
# together. 300,000 bytes are about 100,000 tokens of 3 bytes each. A token has at least one byte,
# so in any language a request has at most 300,000 tokens, which is the limit of OpenAI. The vectors
# of 512 texts fit into the largest reply that is read.
MAX_REQUEST_TEXTS = 512
MAX_REQUEST_BYTES = 300_000
# The default length in tokens of a text that the reranker scores: a leaf of the default size (256
# tokens) with some of the text around it. Together with heading and query, the text has less than
# 512 tokens. Many rerankers read no more than 512 tokens, and some servers refuse longer texts.
DEFAULT_RERANK_TEXT_TOKENS = 320
# To run a service that is open to the network without protection, an operator must set
# HRAG_INSECURE_NO_AUTH, HRAG_INSECURE_PLAINTEXT or HRAG_INSECURE_METRICS to exactly these texts.
NO_AUTH_WORDS = "everybody may read and change all data"
PLAINTEXT_WORDS = "everybody on the way may read all data and tokens"
METRICS_WORDS = "everybody may read the metrics"
# The maximum size of a request to the indexer, as a multiple of the maximum size of a document.
_REQUEST_PER_DOCUMENT = 4
# The maximum size of a request to the retriever. A batch with as many searches as are allowed, each
# with a filter of 10,000 ids, has 15 MiB.
MAX_SEARCH_BYTES = 16 * MIB
E5_SMALL = "e5-small"
_EMBEDDER = re.compile(rf"builtin|{E5_SMALL}|openai|none|hash:[1-9][0-9]{{0,4}}")
_VARIABLE_OF_TREE_FIELD = {
    "level_sizes": "HIERARCHICAL_CHUNK_LEVELS",
    "overlap_ratio": "HIERARCHICAL_OVERLAP_RATIO",
    "embedding_level": "HIERARCHICAL_EMBEDDING_LEVEL",
    "return_level": "SMALL_TO_BIG_RETURN_LEVEL",
}
# The values of these variables may contain passwords, so no message shows them.
_SECRET = ("HRAG_POSTGRES_DSN", "HRAG_POSTGRES_READ_DSN")
_HOST_AND_PORT = re.compile(r"([^:\s]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})")

_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\]")
_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


def _parse_address(value: str) -> str:
    """Returns `host:port` for an address; a port alone means a port of 127.0.0.1.

    An empty address, which means that nothing listens, is returned unchanged. Raises ValueError
    for an invalid address.
    """
    address = f"127.0.0.1:{value}" if value.isdecimal() else value
    parts = _HOST_AND_PORT.fullmatch(address)
    if address and (parts is None or int(parts[2]) > MAX_PORT):
        raise ValueError(
            "must be host:port, or only a port, which means a port of 127.0.0.1; "
            f"a port is a number from 0 to {MAX_PORT}"
        )
    return address


def _check_service_address(value: str) -> str:
    if not is_address(value):
        raise ValueError(ADDRESS_RULE)
    return value


ServiceAddress = Annotated[str, AfterValidator(_check_service_address)]
ListeningAddress = Annotated[str, AfterValidator(_parse_address)]


def _unlimited_as_none(value: Any) -> Any:
    """Returns None for the value "unlimited", and any other value unchanged.

    With "unlimited", one tenant can be exempt from a quota that the other tenants have.
    """
    return None if value == "unlimited" else value


_Rate = Annotated[float, Field(ge=0.001, le=1_000_000)]
_Count = Annotated[int, Field(ge=1, le=1 << 60)]
CallsPerSecond = Annotated[_Rate | None, BeforeValidator(_unlimited_as_none)]
BurstCalls = Annotated[int, Field(ge=1, le=1_000_000)] | None
StorageLimit = Annotated[_Count | None, BeforeValidator(_unlimited_as_none)]


class SettingsError(Exception):
    """Raised if an environment variable is missing or has a value that is not allowed."""


def _check_pair(cert: str, key: str, cert_file: Path | None, key_file: Path | None) -> None:
    """Raises SettingsError if only one of the two variables with the names `cert` and `key` is set.

    `cert_file` and `key_file` are their values: a certificate and its private key.
    """
    if (cert_file is None) == (key_file is None):
        return
    pair = (cert, key) if key_file is None else (key, cert)
    raise SettingsError(
        f"{pair[0]} is '{cert_file or key_file}': it needs {pair[1]}; set both or neither"
    )


def _variable(name: str, default: Any, **rules: Any) -> Any:
    return Field(default, validation_alias=name, **rules)


class EngineSettings(BaseSettings):
    """The settings of the engine that stores the documents: its kind, its location, its limits.

    `hrag.engine.open_engine` needs no other settings. Both the services and the commands read these
    settings from the environment.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_ignore_empty=True)

    engine: Literal["embedded", "postgres"] = _variable("HRAG_ENGINE", "embedded")
    postgres_dsn: str = _variable("HRAG_POSTGRES_DSN", "", repr=False)
    postgres_read_dsn: str = _variable("HRAG_POSTGRES_READ_DSN", "", repr=False)
    postgres_connections: int = _variable(
        "HRAG_POSTGRES_CONNECTIONS", _POSTGRES_CONNECTIONS, ge=2, le=1000
    )
    postgres_home_leaves: int = _variable(
        "HRAG_POSTGRES_HOME_LEAVES", DEFAULT_HOME_LEAVES, ge=256, le=1_000_000
    )
    data_dir: Path = _variable("HRAG_DATA_DIR", Path("./data"))
    disk_reserve_bytes: int = _variable("HRAG_DISK_RESERVE_BYTES", 64 * MIB, ge=0, le=1 << 50)
    segment_min_leaves: int = _variable("HRAG_SEGMENT_MIN_LEAVES", 8192, ge=64, le=1 << 24)
    memory_bytes: int = _variable("HRAG_MEMORY_BYTES", 4096 * MIB, ge=MIB, le=1 << 50)
    vector_memory_bytes: int = _variable("HRAG_VECTOR_MEMORY_BYTES", 256 * MIB, ge=0, le=1 << 50)

    @field_validator("postgres_dsn", "postgres_read_dsn")
    @classmethod
    def _check_dsn(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("engine") == "postgres":
            check_dsn(value)
        return value

    @model_validator(mode="after")
    def _check_postgres(self) -> Self:
        if self.engine == "postgres" and not self.postgres_dsn:
            raise SettingsError("HRAG_POSTGRES_DSN must be set with HRAG_ENGINE=postgres")
        return self


class AuditSettings(BaseSettings):
    """The settings of the log (`hrag.observe.log`) and the audit log (`hrag.observe.audit`)."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_ignore_empty=True)

    audit_file: Path | None = _variable("HRAG_AUDIT_FILE", None)
    audit_reads: bool = _variable("HRAG_AUDIT_READS", False)
    log_format: Literal["console", "json"] = _variable("HRAG_LOG_FORMAT", "console")


class CommonSettings(EngineSettings, AuditSettings):
    """The settings that the indexer, the retriever and the gateway have in common."""

    embedder: str = _variable("HRAG_EMBEDDER", "builtin")
    openai_api_key: str = _variable("OPENAI_API_KEY", "", repr=False)
    openai_base_url: str = _variable("OPENAI_BASE_URL", "")
    openai_model: str = _variable("HRAG_OPENAI_EMBEDDING_MODEL", "text-embedding-3-small")
    openai_dimensions: int | None = _variable("HRAG_OPENAI_DIMENSIONS", None, ge=1, le=16_384)
    openai_timeout_s: float = _variable("HRAG_OPENAI_TIMEOUT_S", 30.0, gt=0, le=600)
    openai_request_texts: int = _variable(
        "HRAG_OPENAI_REQUEST_TEXTS", MAX_REQUEST_TEXTS, ge=1, le=MAX_REQUEST_TEXTS
    )
    openai_request_bytes: int = _variable(
        "HRAG_OPENAI_REQUEST_BYTES", MAX_REQUEST_BYTES, ge=KIB, le=MAX_REQUEST_BYTES
    )
    previous_embedder: str = _variable("HRAG_PREVIOUS_EMBEDDER", "")
    previous_openai_api_key: str = _variable("HRAG_PREVIOUS_OPENAI_API_KEY", "", repr=False)
    previous_openai_base_url: str = _variable("HRAG_PREVIOUS_OPENAI_BASE_URL", "")
    previous_openai_model: str = _variable("HRAG_PREVIOUS_OPENAI_EMBEDDING_MODEL", "")
    previous_openai_dimensions: int | None = _variable(
        "HRAG_PREVIOUS_OPENAI_DIMENSIONS", None, ge=1, le=16_384
    )
    chat_model: str = _variable("HRAG_CHAT_MODEL", "")
    chat_base_url: str = _variable("HRAG_CHAT_BASE_URL", "")
    chat_api_key: str = _variable("HRAG_CHAT_API_KEY", "", repr=False)
    chat_timeout_s: float = _variable("HRAG_CHAT_TIMEOUT_S", 60.0, gt=0, le=600)
    chat_reasoning_tags: Literal["auto", "both", "closing"] = _variable(
        "HRAG_CHAT_REASONING_TAGS", "auto"
    )
    hierarchical: bool = _variable("HIERARCHICAL_CHUNKS_ENABLED", True)
    level_sizes: Annotated[tuple[int, ...], NoDecode] = _variable(
        "HIERARCHICAL_CHUNK_LEVELS", (256, 512, 1024, 2048)
    )
    overlap_ratio: float = _variable("HIERARCHICAL_OVERLAP_RATIO", 0.1)
    embedding_level: int = _variable("HIERARCHICAL_EMBEDDING_LEVEL", 0)
    small_to_big_return_level: int | None = _variable("SMALL_TO_BIG_RETURN_LEVEL", None)
    max_document_bytes: int = _variable("HRAG_MAX_DOCUMENT_BYTES", 32 * MIB, ge=KIB, le=256 * MIB)
    # By default, a reply has at most 3 MiB, because most gRPC clients refuse replies of more than
    # 4 MiB unless they are configured otherwise. The lowest allowed value is 1 MiB, so that every
    # entry of a list fits into a reply: the metadata of an entry has at most about 400 KB.
    max_reply_bytes: int = _variable("HRAG_MAX_REPLY_BYTES", 3 * MIB, ge=MIB, le=512 * MIB)
    max_concurrent_calls: int = _variable("HRAG_MAX_CONCURRENT_CALLS", 256, ge=1, le=65_536)
    max_connections: int = _variable("HRAG_MAX_CONNECTIONS", 4096, ge=1, le=1 << 20)
    max_streams: int = _variable("HRAG_MAX_STREAMS", 64, ge=1, le=4096)
    tenant_max_waiting_calls: int | None = _variable(
        "HRAG_TENANT_MAX_WAITING_CALLS", None, ge=1, le=65_536
    )
    max_unanswered_bytes: int = _variable(
        "HRAG_MAX_UNANSWERED_BYTES", 512 * MIB, ge=MIB, le=1 << 40
    )
    max_unread_bytes: int = _variable("HRAG_MAX_UNREAD_BYTES", 128 * MIB, ge=MIB, le=1 << 40)
    arrival_timeout_s: float = _variable("HRAG_ARRIVAL_TIMEOUT_S", 10.0, gt=0, le=3600)
    send_timeout_s: float = _variable("HRAG_SEND_TIMEOUT_S", 30.0, gt=0, le=3600)
    stream_idle_timeout_s: float = _variable("HRAG_STREAM_IDLE_TIMEOUT_S", 120.0, gt=0, le=86_400)
    default_deadline_s: float = _variable("HRAG_DEFAULT_DEADLINE_S", 600.0, gt=0, le=86_400)
    configured_threads: int | None = _variable("HRAG_THREADS", None, ge=1, le=1024)
    tenant_calls_per_s: CallsPerSecond = _variable("HRAG_TENANT_CALLS_PER_S", None)
    tenant_burst: BurstCalls = _variable("HRAG_TENANT_BURST", None)
    tenant_max_bytes: StorageLimit = _variable("HRAG_TENANT_MAX_BYTES", None)
    tenant_max_documents: StorageLimit = _variable("HRAG_TENANT_MAX_DOCUMENTS", None)
    tenant_max_collections: StorageLimit = _variable("HRAG_TENANT_MAX_COLLECTIONS", None)
    tenant_quotas_file: Path | None = _variable("HRAG_TENANT_QUOTAS_FILE", None)
    auth: Literal["none", "api_key", "jwt"] = _variable("HRAG_AUTH", "none")
    insecure_no_auth: str = _variable("HRAG_INSECURE_NO_AUTH", "")
    api_keys_file: Path | None = _variable("HRAG_API_KEYS_FILE", None)
    jwt_jwks_file: Path | None = _variable("HRAG_JWT_JWKS_FILE", None)
    jwt_issuer: str = _variable("HRAG_JWT_ISSUER", "")
    jwt_audience: str = _variable("HRAG_JWT_AUDIENCE", "")
    jwt_leeway_s: float = _variable("HRAG_JWT_LEEWAY_S", 30.0, ge=0, le=300)
    jwt_tenants_claim: str = _variable("HRAG_JWT_TENANTS_CLAIM", "tenants")
    jwt_role_claim: str = _variable("HRAG_JWT_ROLE_CLAIM", "role")
    tls_cert_file: Path | None = _variable("HRAG_TLS_CERT_FILE", None)
    tls_key_file: Path | None = _variable("HRAG_TLS_KEY_FILE", None)
    tls_client_ca_file: Path | None = _variable("HRAG_TLS_CLIENT_CA_FILE", None)
    insecure_plaintext: str = _variable("HRAG_INSECURE_PLAINTEXT", "")
    metrics_token_file: Path | None = _variable("HRAG_METRICS_TOKEN_FILE", None)
    metrics_tls: bool = _variable("HRAG_METRICS_TLS", False)
    insecure_metrics: str = _variable("HRAG_INSECURE_METRICS", "")
    reflection: bool = _variable("HRAG_REFLECTION", True)
    drain_s: float = _variable("HRAG_DRAIN_S", 8.0, ge=0, le=600)
    stop_on_eof: bool = _variable("HRAG_STOP_ON_EOF", False)
    tracing: bool | None = _variable("HRAG_TRACING", None)
    otlp_endpoint: str = _variable("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    log_level: Literal["debug", "info", "warning", "error"] = _variable("HRAG_LOG_LEVEL", "info")

    @field_validator("level_sizes", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(value.split(",")) if isinstance(value, str) else value

    @field_validator("embedder", "previous_embedder")
    @classmethod
    def _check_embedder(cls, value: str) -> str:
        if value and not _EMBEDDER.fullmatch(value):
            raise ValueError(
                "must be builtin, e5-small, openai, none, or hash:<dimension>, as in hash:384"
            )
        return value

    @model_validator(mode="after")
    def _check_tree(self) -> Self:
        _ = self.return_level
        return self

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        tls = self.tls_cert_file, self.tls_key_file
        _check_pair("HRAG_TLS_CERT_FILE", "HRAG_TLS_KEY_FILE", *tls)
        if self.tls_client_ca_file is not None and None in tls:
            raise SettingsError(
                f"HRAG_TLS_CLIENT_CA_FILE is '{self.tls_client_ca_file}': it needs "
                "HRAG_TLS_CERT_FILE and HRAG_TLS_KEY_FILE"
            )
        if self.metrics_tls and None in tls:
            raise SettingsError(
                "HRAG_METRICS_TLS is true: it needs HRAG_TLS_CERT_FILE and HRAG_TLS_KEY_FILE"
            )
        return self

    @property
    def previous(self) -> Self | None:
        """The settings with the previous embedder as the embedder; None if there is none.

        The key of the current endpoint is sent to no other endpoint.
        """
        if not self.previous_embedder:
            return None
        is_same_endpoint = not self.previous_openai_base_url
        own_key = self.previous_openai_api_key
        update = {
            "embedder": self.previous_embedder,
            "openai_base_url": self.previous_openai_base_url or self.openai_base_url,
            "openai_api_key": own_key or (self.openai_api_key if is_same_endpoint else ""),
            "openai_model": self.previous_openai_model or self.openai_model,
            "openai_dimensions": self.previous_openai_dimensions,
        }
        return self.model_copy(update=update)

    @property
    def is_tracing(self) -> bool:
        """True if calls are traced.

        HRAG_TRACING decides. If it is not set, calls are traced if an OTLP endpoint is set.
        """
        return bool(self.otlp_endpoint) if self.tracing is None else self.tracing

    @property
    def threads(self) -> int:
        """The number of calls that may run at the same time; further calls wait."""
        return self.configured_threads or _THREADS

    @property
    def tenant_quota(self) -> Quota:
        """The default quota, for each tenant that HRAG_TENANT_QUOTAS_FILE does not name."""
        return Quota(
            self.tenant_calls_per_s,
            self.tenant_burst,
            self.tenant_max_bytes,
            self.tenant_max_documents,
            self.tenant_max_collections,
        )

    @property
    def max_request_bytes(self) -> int:
        """The maximum size of a request message in bytes.

        gRPC refuses a larger message before hrag reads it. The maximum is four times the maximum
        size of a document. So a document that is slightly too large still reaches hrag, whose error
        message is more helpful than gRPC's.
        """
        return _REQUEST_PER_DOCUMENT * self.max_document_bytes

    @property
    def tree(self) -> TreeSettings:
        """The settings with which new collections cut documents into chunks.

        With HIERARCHICAL_CHUNKS_ENABLED=false there is only one level: chunks of the size of
        leaves. Raises InvalidArgument if the settings are invalid.
        """
        full = TreeSettings(self.level_sizes, self.overlap_ratio, self.embedding_level)
        if self.hierarchical:
            return full
        return TreeSettings((full.leaf_tokens,), self.overlap_ratio, 0)

    @property
    def return_level(self) -> int:
        """The level of the passages of a SMALL_TO_BIG search, by default.

        The default is used if neither the search nor the settings of the collection name a level.
        Raises InvalidArgument if the settings are invalid.
        """
        tree = self.tree
        if self.small_to_big_return_level is None or not self.hierarchical:
            return max(tree.embedding_level, min(DEFAULT_RETURN_LEVEL, tree.top_level))
        tree.check_return_level(self.small_to_big_return_level)
        return self.small_to_big_return_level


class IndexerSettings(CommonSettings):
    """The settings of `indexer_svc`."""

    address: ServiceAddress = _variable("HRAG_INDEXER_ADDRESS", "127.0.0.1:50051")
    metrics_address: ListeningAddress = _variable("HRAG_INDEXER_METRICS_ADDRESS", "")
    summaries: SummaryUnit = _variable("HRAG_SUMMARIES", SummaryUnit.NONE)
    summary_min_chars: int = _variable("HRAG_SUMMARY_MIN_CHARS", 50, ge=1, le=1_000_000)
    summary_max_tokens: int = _variable("HRAG_SUMMARY_MAX_TOKENS", 10_000_000, ge=0, le=1 << 50)
    keep_originals: bool = _variable("HRAG_KEEP_ORIGINALS", False)
    page_image_cache_bytes: int = _variable(
        "HRAG_PAGE_IMAGE_CACHE_BYTES", 32 * MIB, ge=0, le=1 << 40
    )
    niceness: int = _variable("HRAG_INDEXER_NICENESS", 10, ge=0, le=19)
    language: str = _variable("HRAG_ANALYZER", DEFAULT_LANGUAGE)
    configured_parsers: int | None = _variable("HRAG_PARSERS", None, ge=2, le=256)
    parser_memory_bytes: int = _variable(
        "HRAG_PARSER_MEMORY_BYTES", 512 * MIB, ge=128 * MIB, le=1 << 40
    )
    parser_timeout_s: float = _variable("HRAG_PARSER_TIMEOUT_S", 30.0, ge=1, le=600)
    ocr_max_pages: int = _variable("HRAG_OCR_MAX_PAGES", 200, ge=0, le=MAX_PAGES)
    ocr_processes: int = _variable("HRAG_OCR_PROCESSES", 2, ge=2, le=256)
    ocr_memory_bytes: int = _variable(
        "HRAG_OCR_MEMORY_BYTES", 2048 * MIB, ge=1024 * MIB, le=1 << 40
    )
    ocr_timeout_s: float = _variable("HRAG_OCR_TIMEOUT_S", 120.0, ge=1, le=600)

    @property
    def parsers(self) -> int:
        """The number of parser processes, each of which parses one file at a time."""
        return self.configured_parsers or max(2, min(_PARSERS, usable_cores()))

    @field_validator("language")
    @classmethod
    def _check_language(cls, value: str) -> str:
        if value not in LANGUAGES:
            raise ValueError(f"must be one of {', '.join(LANGUAGES)}")
        return value


class RetrieverSettings(CommonSettings):
    """The settings of `retriever_svc`."""

    address: ServiceAddress = _variable("HRAG_RETRIEVER_ADDRESS", "127.0.0.1:50052")
    metrics_address: ListeningAddress = _variable("HRAG_RETRIEVER_METRICS_ADDRESS", "")
    default_deadline_s: float = _variable("HRAG_DEFAULT_DEADLINE_S", 120.0, gt=0, le=86_400)
    query_cache_entries: int = _variable("HRAG_QUERY_CACHE_ENTRIES", 10_000, ge=0, le=10_000_000)
    sentence_cache_entries: int = _variable(
        "HRAG_SENTENCE_CACHE_ENTRIES", 10_000, ge=0, le=10_000_000
    )
    answer_max_tokens: int = _variable("HRAG_ANSWER_MAX_TOKENS", 1024, ge=1, le=131_072)
    answer_passage_tokens: int = _variable(
        "HRAG_ANSWER_PASSAGE_TOKENS", 8192, ge=MIN_CHUNK_TOKENS, le=1 << 20
    )
    answer_prompt_file: Path | None = _variable("HRAG_ANSWER_PROMPT_FILE", None)
    standalone_timeout_s: float = _variable("HRAG_STANDALONE_TIMEOUT_S", 5.0, ge=0, le=60)
    max_concurrent_answers: int | None = _variable(
        "HRAG_MAX_CONCURRENT_ANSWERS", None, ge=1, le=1024
    )
    rerank_base_url: str = _variable("HRAG_RERANK_BASE_URL", "")
    rerank_form: Literal["cohere", "tei"] = _variable("HRAG_RERANK_FORM", "cohere")
    rerank_model: str = _variable("HRAG_RERANK_MODEL", "")
    rerank_api_key: str = _variable("HRAG_RERANK_API_KEY", "", repr=False)
    rerank_top: int = _variable("HRAG_RERANK_TOP", DEFAULT_RERANK_TOP, ge=1, le=MAX_LIMIT)
    rerank_leaves: int = _variable("HRAG_RERANK_LEAVES", DEFAULT_RERANK_LEAVES, ge=1, le=MAX_LIMIT)
    rerank_text_tokens: int = _variable(
        "HRAG_RERANK_TEXT_TOKENS",
        DEFAULT_RERANK_TEXT_TOKENS,
        ge=MIN_CHUNK_TOKENS,
        le=MAX_CHUNK_TOKENS,
    )
    rerank_timeout_s: float = _variable("HRAG_RERANK_TIMEOUT_S", 2.0, gt=0, le=60)
    workers: int = _variable("HRAG_WORKERS", 1, ge=1, le=256)
    hybrid_fallback: bool = _variable("HRAG_HYBRID_FALLBACK", True)

    @property
    def threads(self) -> int:
        """The number of calls that may run at the same time; further calls wait.

        HRAG_THREADS decides. If it is not set, the number is 16 if searches wait for a remote
        model, and otherwise depends on the number of cores.
        """
        is_remote = "openai" in (self.embedder, self.previous_embedder)
        waits = is_remote or self.rerank_base_url
        if self.configured_threads is not None or waits:
            return super().threads
        cores = usable_cores()
        if self.engine == "postgres":
            return min(_THREADS, cores + _THREADS_BEYOND_CORES)
        return min(max(cores, _MIN_COMPUTING_THREADS), _MAX_COMPUTING_THREADS)

    @property
    def max_request_bytes(self) -> int:
        """The maximum size of a request message in bytes.

        The limit is low, because a parsed request may take seventy times as much memory as its
        message.
        """
        return MAX_SEARCH_BYTES

    @property
    def concurrent_answers(self) -> int:
        """The number of calls of Answer that may run at the same time, each in its own thread.

        They are fewer than HRAG_THREADS, or than 16 if that is not set, because they also search.
        Raises SettingsError if the settings leave no thread for answers, or none for searches.
        """
        limit = (self.configured_threads or _THREADS) - 1
        if limit == 0:
            raise SettingsError(
                "HRAG_THREADS is 1; with HRAG_CHAT_MODEL it must be at least 2, because answers "
                "are fewer than HRAG_THREADS"
            )
        configured = self.max_concurrent_answers
        if configured is not None and configured > limit:
            raise SettingsError(
                f"HRAG_MAX_CONCURRENT_ANSWERS is {configured}; it must be at most {limit}, "
                "one less than HRAG_THREADS, so that searches keep a thread"
            )
        return configured or min(DEFAULT_CONCURRENT_ANSWERS, limit)


class GatewaySettings(CommonSettings):
    """The settings of the HTTP gateway.

    For its server certificate, limits and timeouts, the gateway reads the same variables as the
    services. For the connection to the services, it reads the same variables as the commands:
    HRAG_CA_FILE, HRAG_CERT_FILE and HRAG_KEY_FILE.
    """

    address: ListeningAddress = _variable("HRAG_HTTP_ADDRESS", "127.0.0.1:8080", min_length=1)
    metrics_address: ListeningAddress = _variable("HRAG_HTTP_METRICS_ADDRESS", "")
    indexer: ServiceAddress = _variable("HRAG_INDEXER_ADDRESS", "127.0.0.1:50051")
    retriever: ServiceAddress = _variable("HRAG_RETRIEVER_ADDRESS", "127.0.0.1:50052")
    ca_file: Path | None = _variable("HRAG_CA_FILE", None)
    cert_file: Path | None = _variable("HRAG_CERT_FILE", None)
    key_file: Path | None = _variable("HRAG_KEY_FILE", None)
    hosts: Annotated[tuple[str, ...], NoDecode] = _variable("HRAG_HTTP_HOSTS", ())
    origins: Annotated[tuple[str, ...], NoDecode] = _variable("HRAG_HTTP_ORIGINS", ())
    max_buffered_bytes: int = _variable(
        "HRAG_HTTP_MAX_BUFFERED_BYTES", 256 * MIB, ge=MIB, le=1 << 40
    )

    @model_validator(mode="after")
    def _check_client_pair(self) -> Self:
        _check_pair("HRAG_CERT_FILE", "HRAG_KEY_FILE", self.cert_file, self.key_file)
        return self

    @field_validator("hosts", "origins", mode="before")
    @classmethod
    def _split_list(cls, value: Any) -> Any:
        return tuple(map(str.strip, value.split(","))) if isinstance(value, str) else value

    @field_validator("hosts")
    @classmethod
    def _check_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_HOST.fullmatch, value)):
            raise ValueError("must be host names without port, separated by commas")
        return tuple(map(str.lower, value))

    @field_validator("origins")
    @classmethod
    def _check_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_ORIGIN.fullmatch, value)):
            raise ValueError("must be origins such as https://example.org, separated by commas")
        return value


Settings = TypeVar("Settings", bound=BaseSettings)


def load(cls: type[Settings], **overrides: Any) -> Settings:
    """Returns settings of the class `cls` from the environment, or raises SettingsError.

    The name of each keyword argument in `overrides` is the name of an environment variable. Its
    value takes precedence over the value in the environment.
    """
    try:
        return cls(**overrides)
    except InvalidArgument as error:
        variable = _VARIABLE_OF_TREE_FIELD[error.field]
        raise SettingsError(error.message.replace(error.field, variable, 1)) from None
    except ValidationError as error:
        raise SettingsError("; ".join(map(_explain, error.errors()))) from None


def _explain(error: ErrorDetails) -> str:
    variable = error["loc"][0]
    shown = "" if variable in _SECRET else f" is {error['input']!r}"
    return f"{variable}{shown}: {_rule(str(variable), error)}"


def _rule(variable: str, error: ErrorDetails) -> str:
    """Returns what is allowed, with the unit that the name of the variable ends with."""
    rule = error["msg"].removeprefix("Value error, ")
    is_parsed = error["type"] not in ("int_parsing", "int_from_float", "float_parsing")
    if variable.endswith("_BYTES"):
        allowed = "must be a whole number of bytes, without a unit; 4 GiB is 4294967296"
        return f"{rule} bytes" if is_parsed else allowed
    if variable.endswith("_S") and not variable.endswith("_PER_S"):
        return f"{rule} seconds" if is_parsed else "must be a number of seconds, without a unit"
    return rule


# Variables that no service reads: those of the commands, of the files for containers and proxies,
# of the examples, and of the build and its tests.
_OTHER_VARIABLES = (
    *("HRAG_TOKEN", "HRAG_URL", "HRAG_PROTOS", "HRAG_KEYS", "HRAG_PORT", "HRAG_TLS_FOLDER"),
    *("HRAG_INDEXER_PORT", "HRAG_RETRIEVER_PORT", "HRAG_SECOND_RETRIEVER_PORT", "HRAG_HTTP_PORT"),
    *("HRAG_GRAFANA_PORT", "HRAG_PROMETHEUS_PORT", "HRAG_PUBLISH_ADDRESS", "HRAG_INDEXER_CPUS"),
    *("HRAG_RETRIEVER_CPUS", "HRAG_POSTGRES_CPUS", "HRAG_POSTGRES_SECRETS"),
)
_PREFIX = "HRAG_"
# Kubernetes sets some of these for a Service with the name `hrag`.
_OTHER_PATTERN = re.compile(
    r"HRAG_(TEST|BENCH|PROXY|EXTENSION|REQUIRE)_.*|HRAG_(\w+_)?(SERVICE_(HOST|PORT\w*)|PORT_\d+_\w+)"
)


def pop_unknown_variables() -> dict[str, str]:
    """Removes the variables named `HRAG_...` that hrag does not know from the environment.

    Returns their names, each with the nearest name that hrag knows, or with an empty text if no
    name is near. They are removed so that no child process reports them again.
    """
    classes = (IndexerSettings, RetrieverSettings, GatewaySettings)
    known = {
        str(field.validation_alias) for cls in classes for field in cls.model_fields.values()
    }.union(_OTHER_VARIABLES)
    unknown = [
        name
        for name in sorted(os.environ)
        if name.startswith(_PREFIX) and name not in known and not _OTHER_PATTERN.fullmatch(name)
    ]
    for name in unknown:
        del os.environ[name]
    return {name: _nearest(name, known) for name in unknown}


def _nearest(name: str, known: Iterable[str]) -> str:
    """Returns the known name that is most similar after the prefix `HRAG_`, or an empty text."""
    ends = [one.removeprefix(_PREFIX) for one in known if one.startswith(_PREFIX)]
    matches = get_close_matches(name.removeprefix(_PREFIX), ends, 1)
    return f"{_PREFIX}{matches[0]}" if matches else ""
