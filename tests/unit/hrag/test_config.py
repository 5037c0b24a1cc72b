"""Each environment variable has a default and sets a field. Errors name the wrong variables."""

import os
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from hrag import config
from hrag.config import (
    CommonSettings,
    GatewaySettings,
    IndexerSettings,
    RetrieverSettings,
    SettingsError,
    load,
    pop_unknown_variables,
)
from hrag.types import SummaryUnit, TreeSettings

ROOT = Path(__file__).resolve().parents[3]
SERVICE_SETTINGS = (IndexerSettings, RetrieverSettings, GatewaySettings)
VARIABLES = {
    str(field.validation_alias)
    for settings in SERVICE_SETTINGS
    for field in settings.model_fields.values()
}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def example_variables() -> dict[str, str]:
    """Returns the variables in .env.example as Docker Compose reads them.

    From the line `NAME= # comment`, Docker Compose reads `# comment` as the value.
    """
    lines = (ROOT / ".env.example").read_text("utf-8").splitlines()
    pairs = (line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {name: value.lstrip().partition(" #")[0].rstrip() for name, value in pairs}


def loaded(monkeypatch, **variables: str) -> CommonSettings:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return load(CommonSettings)


def test_an_unknown_argument_is_refused():
    with pytest.raises(ValidationError, match="data_dir"):
        CommonSettings(data_dir="elsewhere")


def test_a_copy_of_the_example_changes_no_default(monkeypatch):
    variables = example_variables()
    assert variables.keys() >= VARIABLES
    # The example sets this variable to 2. Without the variable, the default depends on the levels.
    monkeypatch.setenv("SMALL_TO_BIG_RETURN_LEVEL", "2")
    defaults = list(map(load, SERVICE_SETTINGS))
    for name in VARIABLES:
        monkeypatch.setenv(name, variables[name])
    assert list(map(load, SERVICE_SETTINGS)) == defaults


def test_the_defaults_are_the_documented_defaults():
    indexer, retriever = load(IndexerSettings), load(RetrieverSettings)
    assert indexer.tree == retriever.tree == TreeSettings((256, 512, 1024, 2048), 0.1, 0)
    assert indexer.return_level == 2
    assert indexer.data_dir == Path("data")
    assert indexer.embedder == "builtin"
    assert (indexer.address, retriever.address) == ("127.0.0.1:50051", "127.0.0.1:50052")
    assert indexer.segment_min_leaves == 8192
    assert indexer.summaries is SummaryUnit.NONE
    assert (indexer.summary_min_chars, indexer.summary_max_tokens) == (50, 10_000_000)


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("HRAG_DATA_DIR", "/data", "data_dir", Path("/data")),
        ("HRAG_EMBEDDER", "openai", "embedder", "openai"),
        ("HRAG_EMBEDDER", "hash:384", "embedder", "hash:384"),
        ("HRAG_EMBEDDER", "none", "embedder", "none"),
        ("OPENAI_API_KEY", "key", "openai_api_key", "key"),
        ("OPENAI_BASE_URL", "http://x/v1", "openai_base_url", "http://x/v1"),
        ("HRAG_OPENAI_EMBEDDING_MODEL", "m", "openai_model", "m"),
        ("HRAG_OPENAI_DIMENSIONS", "256", "openai_dimensions", 256),
        ("HRAG_OPENAI_TIMEOUT_S", "2.5", "openai_timeout_s", 2.5),
        ("HRAG_OPENAI_REQUEST_TEXTS", "10", "openai_request_texts", 10),
        ("HRAG_OPENAI_REQUEST_BYTES", "16384", "openai_request_bytes", 16_384),
        ("HRAG_CHAT_MODEL", "m", "chat_model", "m"),
        ("HRAG_CHAT_BASE_URL", "http://x/v1", "chat_base_url", "http://x/v1"),
        ("HRAG_CHAT_API_KEY", "key", "chat_api_key", "key"),
        ("HRAG_CHAT_TIMEOUT_S", "2.5", "chat_timeout_s", 2.5),
        ("HRAG_CHAT_REASONING_TAGS", "closing", "chat_reasoning_tags", "closing"),
        ("HIERARCHICAL_CHUNK_LEVELS", "100, 300", "level_sizes", (100, 300)),
        ("HIERARCHICAL_OVERLAP_RATIO", "0.5", "overlap_ratio", 0.5),
        ("HIERARCHICAL_EMBEDDING_LEVEL", "1", "embedding_level", 1),
        ("SMALL_TO_BIG_RETURN_LEVEL", "3", "return_level", 3),
        ("HRAG_MAX_DOCUMENT_BYTES", "1024", "max_document_bytes", 1024),
        ("HRAG_MAX_REPLY_BYTES", "1048576", "max_reply_bytes", 1 << 20),
        ("HRAG_MAX_CONCURRENT_CALLS", "1", "max_concurrent_calls", 1),
        ("HRAG_THREADS", "4", "configured_threads", 4),
        ("HRAG_AUTH", "api_key", "auth", "api_key"),
        ("HRAG_API_KEYS_FILE", "/keys.json", "api_keys_file", Path("/keys.json")),
        ("HRAG_JWT_JWKS_FILE", "/jwks.json", "jwt_jwks_file", Path("/jwks.json")),
        ("HRAG_JWT_LEEWAY_S", "0", "jwt_leeway_s", 0.0),
        ("HRAG_JWT_TENANTS_CLAIM", "t", "jwt_tenants_claim", "t"),
        ("HRAG_ENGINE", "embedded", "engine", "embedded"),
        ("HRAG_POSTGRES_CONNECTIONS", "7", "postgres_connections", 7),
        ("HRAG_POSTGRES_HOME_LEAVES", "256", "postgres_home_leaves", 256),
        ("HRAG_SEGMENT_MIN_LEAVES", "64", "segment_min_leaves", 64),
        ("HRAG_DISK_RESERVE_BYTES", "0", "disk_reserve_bytes", 0),
        ("HRAG_MEMORY_BYTES", "1048576", "memory_bytes", 1 << 20),
        ("HRAG_REFLECTION", "false", "reflection", False),
        ("HRAG_DRAIN_S", "0", "drain_s", 0.0),
        ("HRAG_LOG_FORMAT", "json", "log_format", "json"),
        ("HRAG_LOG_LEVEL", "debug", "log_level", "debug"),
    ],
)
def test_a_variable_sets_its_field(monkeypatch, variable, value, field, expected):
    assert getattr(loaded(monkeypatch, **{variable: value}), field) == expected


def test_each_service_reads_its_variables(monkeypatch):
    monkeypatch.setenv("HRAG_INDEXER_ADDRESS", "0.0.0.0:1")
    monkeypatch.setenv("HRAG_INDEXER_NICENESS", "3")
    monkeypatch.setenv("HRAG_RETRIEVER_ADDRESS", "0.0.0.0:2")
    monkeypatch.setenv("HRAG_QUERY_CACHE_ENTRIES", "0")
    assert load(IndexerSettings).address == "0.0.0.0:1"
    assert load(IndexerSettings).niceness == 3
    assert load(RetrieverSettings).address == "0.0.0.0:2"
    assert load(RetrieverSettings).query_cache_entries == 0


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        *(("HRAG_SUMMARIES", unit.value, "summaries", unit) for unit in SummaryUnit),
        ("HRAG_SUMMARY_MIN_CHARS", "1", "summary_min_chars", 1),
        ("HRAG_KEEP_ORIGINALS", "true", "keep_originals", True),
        ("HRAG_SUMMARY_MAX_TOKENS", "0", "summary_max_tokens", 0),
    ],
)
def test_a_summary_variable_sets_its_field(monkeypatch, variable, value, field, expected):
    monkeypatch.setenv(variable, value)
    assert getattr(load(IndexerSettings), field) == expected


ALLOWED_UNITS = "Input should be 'none', 'chunk', 'page' or 'section'"


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("HRAG_SUMMARIES", "chunks", ALLOWED_UNITS),
        ("HRAG_SUMMARIES", "Page", ALLOWED_UNITS),
        ("HRAG_SUMMARIES", "true", ALLOWED_UNITS),
        ("HRAG_SUMMARIES", "chunk,page", ALLOWED_UNITS),
        ("HRAG_SUMMARY_MIN_CHARS", "0", "greater than or equal to 1"),
        ("HRAG_SUMMARY_MIN_CHARS", "1000001", "less than or equal to 1000000"),
        ("HRAG_SUMMARY_MIN_CHARS", "many", "valid integer"),
        ("HRAG_SUMMARY_MIN_CHARS", "nan", "valid integer"),
        ("HRAG_SUMMARY_MAX_TOKENS", "-1", "greater than or equal to 0"),
        ("HRAG_SUMMARY_MAX_TOKENS", str(1 << 51), "less than or equal to"),
        ("HRAG_SUMMARY_MAX_TOKENS", "1.5", "valid integer"),
    ],
)
def test_a_wrong_value_of_a_summary_variable_is_refused(monkeypatch, variable, value, rule):
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as refused:
        load(IndexerSettings)
    assert str(refused.value).startswith(f"{variable} is '{value}': ")
    assert rule in str(refused.value)


def test_the_language_and_the_hybrid_fallback_can_be_set(monkeypatch):
    assert (load(IndexerSettings).language, load(RetrieverSettings).hybrid_fallback) == (
        "english",
        True,
    )
    monkeypatch.setenv("HRAG_ANALYZER", "german")
    monkeypatch.setenv("HRAG_HYBRID_FALLBACK", "false")
    assert load(IndexerSettings).language == "german"
    assert not load(RetrieverSettings).hybrid_fallback


@pytest.mark.parametrize("language", ["English", "english/1", "klingon"])
def test_an_unknown_language_is_refused_with_the_known_ones(monkeypatch, language):
    monkeypatch.setenv("HRAG_ANALYZER", language)
    with pytest.raises(SettingsError, match=f"HRAG_ANALYZER is '{language}': .*simple, .*german"):
        load(IndexerSettings)


def test_an_empty_variable_has_the_default_value(monkeypatch):
    assert loaded(monkeypatch, HRAG_THREADS="", HIERARCHICAL_CHUNK_LEVELS="").threads == 16


@pytest.mark.parametrize(
    ("variables", "threads"),
    [
        ({}, 2),
        ({"HRAG_EMBEDDER": "hash:64"}, 2),
        ({"HRAG_ENGINE": "postgres", "HRAG_POSTGRES_DSN": "postgresql://x"}, 4),
        ({"HRAG_EMBEDDER": "openai"}, 16),
        ({"HRAG_CHAT_MODEL": "some"}, 2),
        ({"HRAG_RERANK_BASE_URL": "http://x"}, 16),
        ({"HRAG_THREADS": "7"}, 7),
        ({"HRAG_EMBEDDER": "openai", "HRAG_THREADS": "7"}, 7),
    ],
)
def test_a_retriever_whose_searches_call_no_model_endpoint_has_few_threads(
    monkeypatch, variables, threads
):
    monkeypatch.setattr(config, "usable_cores", lambda: 2)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert load(RetrieverSettings).threads == threads
    monkeypatch.setattr(config, "usable_cores", lambda: 64)
    threads_of_64_cores = {2: 4, 4: 16}
    assert load(RetrieverSettings).threads == threads_of_64_cores.get(threads, threads)
    monkeypatch.setattr(config, "usable_cores", lambda: 1)
    threads_of_1_core = {2: 2, 4: 3}
    assert load(RetrieverSettings).threads == threads_of_1_core.get(threads, threads)


def test_without_hierarchy_the_tree_has_only_the_embedded_level(monkeypatch):
    settings = loaded(
        monkeypatch,
        HIERARCHICAL_CHUNKS_ENABLED="false",
        HIERARCHICAL_CHUNK_LEVELS="100,200,400",
        HIERARCHICAL_EMBEDDING_LEVEL="1",
        SMALL_TO_BIG_RETURN_LEVEL="2",
    )
    assert settings.tree == TreeSettings((200,), 0.1, 0)
    assert settings.return_level == 0


@pytest.mark.parametrize(
    ("levels", "embedded", "expected"),
    [("64", "0", 0), ("64,128", "0", 1), ("64,128,256,512", "0", 2), ("64,128,256,512", "3", 3)],
)
def test_the_default_return_level_is_a_level_of_the_tree(monkeypatch, levels, embedded, expected):
    settings = loaded(
        monkeypatch, HIERARCHICAL_CHUNK_LEVELS=levels, HIERARCHICAL_EMBEDDING_LEVEL=embedded
    )
    assert settings.return_level == expected


MUST_INCREASE = "sizes must be strictly increasing"
FROM_0_TO_HALF = "it must be from 0.0 to 0.5"


@pytest.mark.parametrize(
    ("variable", "value", "shown", "rule"),
    [
        ("HIERARCHICAL_CHUNK_LEVELS", "512,256", "'512,256'", MUST_INCREASE),
        ("HIERARCHICAL_CHUNK_LEVELS", "256,256", "'256,256'", MUST_INCREASE),
        ("HIERARCHICAL_CHUNK_LEVELS", "40,41,42,43,44,45,46,47,48", "(9 levels)", "1 to 8"),
        ("HIERARCHICAL_CHUNK_LEVELS", "31", "'31'", "from 32 to 32768"),
        ("HIERARCHICAL_CHUNK_LEVELS", "256,many", "'many'", "valid integer"),
        ("HIERARCHICAL_CHUNK_LEVELS", "256,,512", "''", "valid integer"),
        ("HIERARCHICAL_CHUNK_LEVELS", "256.5", "'256.5'", "valid integer"),
        ("HIERARCHICAL_OVERLAP_RATIO", "0.6", "0.6", FROM_0_TO_HALF),
        ("HIERARCHICAL_OVERLAP_RATIO", "-0.1", "-0.1", FROM_0_TO_HALF),
        ("HIERARCHICAL_OVERLAP_RATIO", "NaN", "nan", FROM_0_TO_HALF),
        ("HIERARCHICAL_OVERLAP_RATIO", "half", "'half'", "valid number"),
        ("HIERARCHICAL_EMBEDDING_LEVEL", "4", "4", "from 0 to 3, the top level"),
        ("HIERARCHICAL_EMBEDDING_LEVEL", "-1", "-1", "from 0 to 3, the top level"),
        ("SMALL_TO_BIG_RETURN_LEVEL", "4", "4", "to 3, the top level"),
        ("SMALL_TO_BIG_RETURN_LEVEL", "-1", "-1", "from 0, the embedded level"),
        ("HIERARCHICAL_CHUNKS_ENABLED", "perhaps", "'perhaps'", "valid boolean"),
        ("HRAG_EMBEDDER", "foo", "'foo'", "builtin, e5-small, openai, none, or hash:<dimension>"),
        (
            "HRAG_EMBEDDER",
            "hash:0",
            "'hash:0'",
            "builtin, e5-small, openai, none, or hash:<dimension>",
        ),
        ("HRAG_OPENAI_DIMENSIONS", "0", "'0'", "greater than or equal to 1"),
        ("HRAG_OPENAI_TIMEOUT_S", "0", "'0'", "greater than 0"),
        ("HRAG_OPENAI_REQUEST_TEXTS", "0", "'0'", "greater than or equal to 1"),
        ("HRAG_OPENAI_REQUEST_TEXTS", "513", "'513'", "less than or equal to 512"),
        ("HRAG_OPENAI_REQUEST_BYTES", "1023", "'1023'", "greater than or equal to 1024"),
        ("HRAG_OPENAI_REQUEST_BYTES", "300001", "'300001'", "less than or equal to 300000"),
        ("HRAG_CHAT_TIMEOUT_S", "nan", "'nan'", "less than or equal to 600"),
        ("HRAG_CHAT_TIMEOUT_S", "601", "'601'", "less than or equal to 600"),
        ("HRAG_CHAT_REASONING_TAGS", "none", "'none'", "'auto', 'both' or 'closing'"),
        ("HRAG_MAX_DOCUMENT_BYTES", "1", "'1'", "greater than or equal to 1024"),
        ("HRAG_MAX_REPLY_BYTES", "1", "'1'", "greater than or equal to 1048576"),
        ("HRAG_MAX_CONCURRENT_CALLS", "0", "'0'", "greater than or equal to 1"),
        ("HRAG_THREADS", "2000", "'2000'", "less than or equal to 1024"),
        ("HRAG_ENGINE", "sqlite", "'sqlite'", "'embedded'"),
        ("HRAG_POSTGRES_CONNECTIONS", "1", "'1'", "greater than or equal to 2"),
        ("HRAG_SEGMENT_MIN_LEAVES", "63", "'63'", "greater than or equal to 64"),
        ("HRAG_DISK_RESERVE_BYTES", "-1", "'-1'", "greater than or equal to 0"),
        ("HRAG_MEMORY_BYTES", "1", "'1'", "greater than or equal to 1048576"),
        ("HRAG_REFLECTION", "2", "'2'", "valid boolean"),
        ("HRAG_DRAIN_S", "-1", "'-1'", "greater than or equal to 0"),
        ("HRAG_LOG_FORMAT", "xml", "'xml'", "'console' or 'json'"),
        ("HRAG_LOG_LEVEL", "loud", "'loud'", "'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_a_wrong_value_is_refused_with_variable_value_and_rule(
    monkeypatch, variable, value, shown, rule
):
    with pytest.raises(SettingsError) as refused:
        loaded(monkeypatch, **{variable: value})
    message = str(refused.value)
    assert message.startswith(variable)
    assert shown in message
    assert rule in message


@pytest.mark.parametrize(
    ("threads", "configured", "expected"),
    [
        ("", "", 8),
        ("", "15", 15),
        ("16", "", 8),
        ("4", "", 3),
        ("2", "", 1),
        ("16", "15", 15),
        ("2", "1", 1),
    ],
)
def test_answers_are_fewer_than_threads(monkeypatch, threads, configured, expected):
    monkeypatch.setenv("HRAG_THREADS", threads)
    monkeypatch.setenv("HRAG_MAX_CONCURRENT_ANSWERS", configured)
    assert load(RetrieverSettings).concurrent_answers == expected


@pytest.mark.parametrize(
    ("threads", "configured", "message"),
    [
        ("4", "4", "HRAG_MAX_CONCURRENT_ANSWERS is 4; it must be at most 3, one less than HRAG_T"),
        ("1", "", "HRAG_THREADS is 1; with HRAG_CHAT_MODEL it must be at least 2"),
    ],
)
def test_settings_that_let_answers_use_every_thread_are_refused(
    monkeypatch, threads, configured, message
):
    monkeypatch.setenv("HRAG_THREADS", threads)
    monkeypatch.setenv("HRAG_MAX_CONCURRENT_ANSWERS", configured)
    with pytest.raises(SettingsError, match=message):
        _ = load(RetrieverSettings).concurrent_answers


def test_the_limits_and_the_prompt_file_of_answers_can_be_set(monkeypatch):
    defaults = load(RetrieverSettings)
    assert (defaults.answer_max_tokens, defaults.answer_passage_tokens) == (1024, 8192)
    assert defaults.answer_prompt_file is None
    monkeypatch.setenv("HRAG_ANSWER_MAX_TOKENS", "1")
    monkeypatch.setenv("HRAG_ANSWER_PASSAGE_TOKENS", "32")
    monkeypatch.setenv("HRAG_ANSWER_PROMPT_FILE", "/etc/prompt.txt")
    settings = load(RetrieverSettings)
    assert (settings.answer_max_tokens, settings.answer_passage_tokens) == (1, 32)
    assert settings.answer_prompt_file == Path("/etc/prompt.txt")


@pytest.mark.parametrize(
    ("service", "variable", "value"),
    [
        (RetrieverSettings, "HRAG_ANSWER_MAX_TOKENS", "0"),
        (RetrieverSettings, "HRAG_ANSWER_PASSAGE_TOKENS", "31"),
        (RetrieverSettings, "HRAG_MAX_CONCURRENT_ANSWERS", "0"),
        (RetrieverSettings, "HRAG_STANDALONE_TIMEOUT_S", "-1"),
        (RetrieverSettings, "HRAG_QUERY_CACHE_ENTRIES", "-1"),
    ],
)
def test_a_value_below_the_minimum_of_its_variable_is_refused(
    monkeypatch, service, variable, value
):
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=f"{variable} is '{value}': .*greater than or equal"):
        load(service)


def test_a_return_level_below_the_embedding_level_is_refused(monkeypatch):
    with pytest.raises(SettingsError) as refused:
        loaded(monkeypatch, HIERARCHICAL_EMBEDDING_LEVEL="2", SMALL_TO_BIG_RETURN_LEVEL="1")
    assert str(refused.value) == (
        "SMALL_TO_BIG_RETURN_LEVEL is 1; it must be from 2, the embedded level, to 3, the top level"
    )


def test_the_error_names_every_wrong_variable(monkeypatch):
    with pytest.raises(SettingsError) as refused:
        loaded(monkeypatch, HRAG_THREADS="0", HRAG_DRAIN_S="never")
    assert "HRAG_THREADS is '0'" in str(refused.value)
    assert "HRAG_DRAIN_S is 'never'" in str(refused.value)


@pytest.mark.parametrize(
    "variable",
    ["OPENAI_API_KEY", "HRAG_CHAT_API_KEY", "HRAG_POSTGRES_DSN", "HRAG_POSTGRES_READ_DSN"],
)
def test_the_repr_of_settings_hides_keys_and_passwords(monkeypatch, variable):
    assert "secret" not in repr(loaded(monkeypatch, **{variable: "secret"}))


def test_settings_are_frozen(monkeypatch):
    settings = loaded(monkeypatch)
    with pytest.raises(ValidationError):
        settings.configured_threads = 3


@pytest.mark.parametrize("service", ["INDEXER", "RETRIEVER"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", ""),
        ("9461", "127.0.0.1:9461"),
        ("0", "127.0.0.1:0"),
        ("0.0.0.0:65535", "0.0.0.0:65535"),
        ("[::1]:9461", "[::1]:9461"),
        ("host.example:80", "host.example:80"),
    ],
)
def test_a_metrics_address_may_be_only_a_port(monkeypatch, service, value, expected):
    monkeypatch.setenv(f"HRAG_{service}_METRICS_ADDRESS", value)
    settings = IndexerSettings if service == "INDEXER" else RetrieverSettings
    assert load(settings).metrics_address == expected


@pytest.mark.parametrize(
    "value",
    ["nowhere", "host:", ":80", "host:65536", "65536", "host:-1", "::1:80", "a b:80", "1e3"],
)
def test_the_refusal_of_an_invalid_metrics_address_names_its_variable(monkeypatch, value):
    monkeypatch.setenv("HRAG_INDEXER_METRICS_ADDRESS", value)
    with pytest.raises(SettingsError) as caught:
        load(IndexerSettings)
    assert "HRAG_INDEXER_METRICS_ADDRESS" in str(caught.value)
    assert "must be host:port" in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("HRAG_TENANT_CALLS_PER_S", "0.001", "calls_per_s", 0.001),
        ("HRAG_TENANT_CALLS_PER_S", "unlimited", "calls_per_s", None),
        ("HRAG_TENANT_BURST", "1000000", "burst", 1_000_000),
        ("HRAG_TENANT_MAX_BYTES", str(1 << 60), "max_bytes", 1 << 60),
        ("HRAG_TENANT_MAX_DOCUMENTS", "1", "max_documents", 1),
        ("HRAG_TENANT_MAX_DOCUMENTS", "", "max_documents", None),
        ("HRAG_TENANT_MAX_COLLECTIONS", "7", "max_collections", 7),
    ],
)
def test_a_quota_variable_sets_its_field(monkeypatch, variable, value, field, expected):
    settings = loaded(monkeypatch, **{variable: value})
    assert getattr(settings.tenant_quota, field) == expected


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("HRAG_TENANT_CALLS_PER_S", "0", "greater than or equal to 0.001"),
        ("HRAG_TENANT_CALLS_PER_S", "nan", "less than or equal to 1000000"),
        ("HRAG_TENANT_CALLS_PER_S", "inf", "less than or equal to 1000000"),
        ("HRAG_TENANT_CALLS_PER_S", "ten", "valid number"),
        ("HRAG_TENANT_BURST", "unlimited", "valid integer"),
        ("HRAG_TENANT_BURST", "0", "greater than or equal to 1"),
        ("HRAG_TENANT_MAX_BYTES", "10 GB", "must be a whole number of bytes, without a unit"),
        ("HRAG_TENANT_MAX_BYTES", str(1 << 61), "less than or equal to"),
        ("HRAG_TENANT_MAX_DOCUMENTS", "-1", "greater than or equal to 1"),
        ("HRAG_TENANT_MAX_COLLECTIONS", "1.5", "valid integer"),
    ],
)
def test_a_wrong_value_of_a_quota_variable_is_refused(monkeypatch, variable, value, rule):
    with pytest.raises(SettingsError) as refused:
        loaded(monkeypatch, **{variable: value})
    assert str(refused.value).startswith(f"{variable} is '{value}': ")
    assert rule in str(refused.value)


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("HRAG_MEMORY_BYTES", "4GB", "must be a whole number of bytes, without a unit"),
        ("HRAG_MEMORY_BYTES", "1.5", "must be a whole number of bytes, without a unit"),
        ("HRAG_MEMORY_BYTES", "1", "greater than or equal to 1048576 bytes"),
        ("HRAG_DRAIN_S", "8s", "must be a number of seconds, without a unit"),
        ("HRAG_DRAIN_S", "601", "less than or equal to 600 seconds"),
        ("HRAG_INDEXER_ADDRESS", "nowhere", "must be host:port, with a port from 0 to 65535"),
        ("HRAG_INDEXER_ADDRESS", "host:99999", "must be host:port, with a port from 0 to 65535"),
        ("HRAG_INDEXER_ADDRESS", "http://h:1", "must be host:port, with a port from 0 to 65535"),
    ],
)
def test_the_error_of_a_size_a_time_or_an_address_says_the_rule_with_its_unit(
    monkeypatch, variable, value, rule
):
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as refused:
        load(IndexerSettings)
    assert str(refused.value).startswith(f"{variable} is '{value}': ")
    assert rule in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_unknown_variable_is_found_once_with_the_nearest_name(monkeypatch):
    for name in list(os.environ):
        if name.startswith("HRAG_"):
            monkeypatch.delenv(name)
    for name in ("HRAG_WORKER", "HRAG_XYZZY", "HRAG_TOKEN", "HRAG_AUTH", "HRAG_SERVICE_HOST"):
        monkeypatch.setenv(name, "1")
    for name in ("HRAG_PORT", "HRAG_PORT_50051_TCP_ADDR", "HRAG_TEST_DSN", "HRAG_INDEXER_CPUS"):
        monkeypatch.setenv(name, "1")
    found = pop_unknown_variables()
    assert found == {"HRAG_WORKER": "HRAG_WORKERS", "HRAG_XYZZY": ""}
    assert pop_unknown_variables() == {}


def test_every_variable_of_the_example_file_is_known(monkeypatch):
    text = (ROOT / ".env.example").read_text("utf-8")
    for name in re.findall(r"^#? ?(HRAG_[A-Z0-9_]+)=", text, re.MULTILINE):
        monkeypatch.setenv(name, "1")
    assert pop_unknown_variables() == {}
