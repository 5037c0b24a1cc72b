"""Settings that have no effect are found, and the table of them covers every setting."""

import os
import re
import socket
from pathlib import Path

import pytest
import yaml

from hrag.config import (
    CommonSettings,
    EngineSettings,
    GatewaySettings,
    IndexerSettings,
    RetrieverSettings,
    load,
)
from hrag.required_settings import REQUIREMENTS, pop_ineffective
from tests.support.servers.forked import HRAG, ran

ROOT = Path(__file__).resolve().parents[3]
SERVICES = (IndexerSettings, RetrieverSettings, GatewaySettings)
VARIABLES = {
    str(field.validation_alias): field for cls in SERVICES for field in cls.model_fields.values()
}
NEEDY = {variable: one.needs for one in REQUIREMENTS for variable in one.variables}
# Each of these settings has an effect whatever the others are, or permits something, or is refused
# if another one is missing.
_EFFECTIVE_TEXT = """
HIERARCHICAL_CHUNKS_ENABLED HIERARCHICAL_CHUNK_LEVELS HIERARCHICAL_EMBEDDING_LEVEL
HIERARCHICAL_OVERLAP_RATIO HRAG_ANALYZER HRAG_ARRIVAL_TIMEOUT_S HRAG_AUDIT_FILE HRAG_AUDIT_READS
HRAG_AUTH HRAG_CA_FILE HRAG_CERT_FILE HRAG_CHAT_MODEL HRAG_DEFAULT_DEADLINE_S HRAG_DRAIN_S
HRAG_EMBEDDER HRAG_ENGINE HRAG_HYBRID_FALLBACK HRAG_INDEXER_ADDRESS HRAG_INDEXER_METRICS_ADDRESS
HRAG_INDEXER_NICENESS HRAG_INSECURE_METRICS HRAG_INSECURE_NO_AUTH HRAG_INSECURE_PLAINTEXT
HRAG_KEEP_ORIGINALS HRAG_KEY_FILE HRAG_LOG_FORMAT HRAG_LOG_LEVEL HRAG_MAX_CONCURRENT_CALLS
HRAG_MAX_CONNECTIONS HRAG_MAX_DOCUMENT_BYTES HRAG_MAX_REPLY_BYTES HRAG_MAX_STREAMS
HRAG_MAX_UNANSWERED_BYTES HRAG_MAX_UNREAD_BYTES HRAG_PAGE_IMAGE_CACHE_BYTES HRAG_PARSERS
HRAG_PARSER_MEMORY_BYTES HRAG_PARSER_TIMEOUT_S HRAG_PREVIOUS_EMBEDDER HRAG_QUERY_CACHE_ENTRIES
HRAG_REFLECTION HRAG_RERANK_BASE_URL HRAG_RETRIEVER_ADDRESS HRAG_RETRIEVER_METRICS_ADDRESS
HRAG_SEND_TIMEOUT_S HRAG_STOP_ON_EOF HRAG_STREAM_IDLE_TIMEOUT_S HRAG_SUMMARIES
HRAG_SUMMARY_MIN_CHARS HRAG_TENANT_CALLS_PER_S HRAG_TENANT_MAX_BYTES HRAG_TENANT_MAX_COLLECTIONS
HRAG_TENANT_MAX_DOCUMENTS HRAG_TENANT_MAX_WAITING_CALLS HRAG_TENANT_QUOTAS_FILE HRAG_THREADS
HRAG_TLS_CERT_FILE HRAG_TLS_CLIENT_CA_FILE HRAG_TLS_KEY_FILE HRAG_TRACING HRAG_WORKERS
OPENAI_API_KEY OPENAI_BASE_URL OTEL_EXPORTER_OTLP_ENDPOINT
"""
ALWAYS_EFFECTIVE = _EFFECTIVE_TEXT.split()
# A value of each kind of field that is not the default of any field.
_VALUES = {"int": "77777", "float": "0.5", "bool": "true", "str": "x", "Path": "/x"}
_EXACT = {
    "HRAG_PREVIOUS_OPENAI_DIMENSIONS": "64",
    "HRAG_OPENAI_DIMENSIONS": "64",
    "HRAG_OPENAI_REQUEST_TEXTS": "64",
    "HRAG_OCR_PROCESSES": "3",
    "HRAG_OCR_MEMORY_BYTES": "1073741824",
    "HRAG_OCR_TIMEOUT_S": "9",
    "HRAG_POSTGRES_CONNECTIONS": "9",
    "HRAG_MEMORY_BYTES": "1048576",
    "HRAG_HTTP_MAX_BUFFERED_BYTES": "1048576",
    "HRAG_HTTP_ADDRESS": "127.0.0.1:1",
    "HRAG_HTTP_METRICS_ADDRESS": "127.0.0.1:2",
    "HRAG_CHAT_REASONING_TAGS": "both",
    "HRAG_MAX_CONCURRENT_ANSWERS": "3",
    "HRAG_RERANK_FORM": "tei",
    "HRAG_RERANK_TOP": "3",
    "HRAG_RERANK_LEAVES": "3",
    "HRAG_RERANK_TEXT_TOKENS": "64",
    "SMALL_TO_BIG_RETURN_LEVEL": "0",
    "HRAG_POSTGRES_READ_DSN": "dbname=y",
    "HRAG_HTTP_ORIGINS": "http://h.org",
}
# Settings that make the settings that need them effective, or ineffective.
_MET = {
    "HRAG_CHAT_MODEL": "m",
    "HRAG_RERANK_BASE_URL": "http://h",
    "HRAG_TENANT_CALLS_PER_S": "1",
    "HRAG_INDEXER_METRICS_ADDRESS": "127.0.0.1:3",
}
_PAIR = {"HRAG_TLS_CERT_FILE": "c.pem", "HRAG_TLS_KEY_FILE": "c.key"}
_UNMET = {"HRAG_ENGINE=embedded": {"HRAG_ENGINE": "postgres", "HRAG_POSTGRES_DSN": "dbname=x"}}
_OFF = {"HIERARCHICAL_CHUNKS_ENABLED=true": {"HIERARCHICAL_CHUNKS_ENABLED": "false"}}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("hrag.required_settings.find_spec", lambda _: None)


def _set(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        # The first call lets the fixture restore the variable if the tested function removes it.
        monkeypatch.setenv(name, value)


def _value(variable: str) -> str:
    kind = str(VARIABLES[variable].annotation)
    return _EXACT.get(variable) or next(
        value for name, value in _VALUES.items() if re.search(rf"\b{name}\b", kind)
    )


def test_the_table_and_the_list_name_every_setting_once() -> None:
    """A new setting must be added to REQUIREMENTS, or to ALWAYS_EFFECTIVE of this test."""
    assert sorted([*NEEDY, *ALWAYS_EFFECTIVE]) == sorted(VARIABLES)


@pytest.mark.parametrize("variable", NEEDY)
def test_a_setting_without_what_it_needs_is_found_once(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    needs = NEEDY[variable]
    off = {**_UNMET, **_OFF}.get(needs[0], {})
    _set(monkeypatch, {**_PAIR, **off, variable: _value(variable)})
    settings = [load(IndexerSettings), load(RetrieverSettings)]
    found = pop_ineffective(*settings, is_whole=True)
    assert [str(one) for one in found] == [f"{variable} has no effect without {' or '.join(needs)}"]
    assert variable not in os.environ
    if needs != ("HRAG_ENGINE=postgres",):
        assert pop_ineffective(load(IndexerSettings), load(RetrieverSettings), is_whole=True) == []


@pytest.mark.parametrize("variable", [name for name in NEEDY if NEEDY[name] != ("the extra ocr",)])
def test_a_setting_with_what_it_needs_is_not_found(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    name, _, value = NEEDY[variable][0].partition("=")
    met = {} if name == "--http" else {name: value or _MET[name]}
    if name == "HRAG_ENGINE":
        met["HRAG_POSTGRES_DSN"] = "dbname=x" if value == "postgres" else ""
    _set(monkeypatch, {**_PAIR, variable: _value(variable), **met})
    settings = [load(cls) for cls in SERVICES]
    assert pop_ineffective(*settings, is_whole=True) == []
    assert os.environ[variable]


def test_a_copy_of_the_example_has_no_setting_without_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = (ROOT / ".env.example").read_text("utf-8").splitlines()
    pairs = (line.split("=", 1) for line in lines if line and not line.startswith("#"))
    _set(monkeypatch, {name: text.partition(" #")[0].strip() for name, text in pairs})
    assert pop_ineffective(*(load(cls) for cls in SERVICES)) == []
    assert pop_ineffective(load(IndexerSettings), load(RetrieverSettings), is_whole=True) == []


def test_settings_of_another_service_are_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services that are started one by one often share a file of settings."""
    _set(monkeypatch, {"HRAG_HTTP_ADDRESS": "127.0.0.1:1", "HRAG_RERANK_TOP": "3"})
    assert pop_ineffective(load(IndexerSettings)) == []


def test_settings_with_one_need_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, {"HRAG_POSTGRES_DSN": "dbname=x", "HRAG_POSTGRES_CONNECTIONS": "9"})
    assert [str(one) for one in pop_ineffective(load(EngineSettings))] == [
        "HRAG_POSTGRES_DSN, HRAG_POSTGRES_CONNECTIONS have no effect without HRAG_ENGINE=postgres"
    ]


def _environments() -> list[tuple[str, str, dict[str, str]]]:
    """Returns file, service and variables of each container in the files for Docker Compose."""
    found = []
    for file in (ROOT / "docker-compose.yml", ROOT / "deploy" / "postgres.yml"):
        for name, service in yaml.safe_load(file.read_text("utf-8"))["services"].items():
            texts = service.get("environment") or {}
            variables = {key: re.sub(r"\$\{\w+:-(.*)\}", r"\1", str(texts[key])) for key in texts}
            found.append((file.name, name, variables))
    return found


@pytest.mark.parametrize(("file", "service", "variables"), _environments())
def test_the_containers_have_no_setting_without_effect(
    monkeypatch: pytest.MonkeyPatch, file: str, service: str, variables: dict[str, str]
) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    image = dict(re.findall(r"^    (HRAG_\w+)=(\S+)", dockerfile, re.MULTILINE))
    assert image
    _set(monkeypatch, image | variables)
    gateway = (GatewaySettings,) if "HRAG_HTTP_ADDRESS" in variables else ()
    for cls in gateway or (IndexerSettings, RetrieverSettings):
        assert pop_ineffective(load(cls)) == []


def _hrag(*arguments: str, **variables: str) -> tuple[int, str]:
    done = ran(*HRAG, *arguments, environment={**os.environ, **variables})
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"HRAG_TLS_CERT_FILE": "c.pem"},
            "HRAG_TLS_CERT_FILE is 'c.pem': it needs HRAG_TLS_KEY_FILE; set both or neither",
        ),
        (
            {"HRAG_TLS_KEY_FILE": "c.key"},
            "HRAG_TLS_KEY_FILE is 'c.key': it needs HRAG_TLS_CERT_FILE; set both or neither",
        ),
        (
            {"HRAG_TLS_CLIENT_CA_FILE": "ca.pem"},
            "HRAG_TLS_CLIENT_CA_FILE is 'ca.pem': it needs HRAG_TLS_CERT_FILE and HRAG_TLS_KEY",
        ),
        (
            {"HRAG_METRICS_TLS": "true"},
            "HRAG_METRICS_TLS is true: it needs HRAG_TLS_CERT_FILE and HRAG_TLS_KEY_FILE",
        ),
        ({"HRAG_WORKERS": "1", "HRAG_THREADS": "0"}, "HRAG_THREADS is '0': "),
    ],
)
def test_hrag_serve_refuses_a_wrong_setting_in_one_line_and_starts_nothing(
    tmp_path: Path, variables: dict[str, str], message: str
) -> None:
    code, errors = _hrag("serve", "--data-dir", str(tmp_path / "data"), **variables)
    assert code == 2
    assert errors.startswith(f"error: {message}")
    assert errors.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_hrag_serve_warns_of_settings_that_it_ignores(tmp_path: Path) -> None:
    """The port is in use, so that the command ends before it starts a service."""
    ignored = {"HRAG_HTTP_ADDRESS": "127.0.0.1:1", "HRAG_CHAT_TIMEOUT_S": "9"}
    options = ("--retriever-address", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    with socket.create_server(("127.0.0.1", 0)) as used:
        address = f"127.0.0.1:{used.getsockname()[1]}"
        code, errors = _hrag("serve", "--indexer-address", address, *options, **ignored)
    assert code == 1
    assert errors.splitlines()[:2] == [
        "warning: HRAG_HTTP_ADDRESS has no effect without --http",
        "warning: HRAG_CHAT_TIMEOUT_S has no effect without HRAG_CHAT_MODEL",
    ]
    assert "another program listens there already" in errors


@pytest.mark.parametrize(
    ("module", "variable", "other"),
    [
        ("indexer_svc", "HRAG_TLS_CERT_FILE", "HRAG_TLS_KEY_FILE"),
        ("retriever_svc", "HRAG_TLS_KEY_FILE", "HRAG_TLS_CERT_FILE"),
        ("hrag.gateway", "HRAG_TLS_CERT_FILE", "HRAG_TLS_KEY_FILE"),
        ("hrag.gateway", "HRAG_CERT_FILE", "HRAG_KEY_FILE"),
        ("hrag.gateway", "HRAG_KEY_FILE", "HRAG_CERT_FILE"),
    ],
)
def test_a_service_refuses_half_a_pair_in_one_line(module: str, variable: str, other: str) -> None:
    done = ran("-m", module, environment={**os.environ, variable: "half.pem"})
    assert done.returncode == 2
    name = module.removesuffix("_svc").rpartition(".")[2]
    assert done.stdout + done.stderr == (
        f"{name}: {variable} is 'half.pem': it needs {other}; set both or neither\n"
    )


def test_a_command_of_a_store_warns_of_the_settings_of_the_other_engine(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    code, errors = _hrag("check", "--data-dir", folder, HRAG_POSTGRES_DSN="dbname=x")
    assert code == 2
    warning, error = errors.splitlines()
    assert warning == "warning: HRAG_POSTGRES_DSN has no effect without HRAG_ENGINE=postgres"
    assert error.startswith("error: ")


def test_common_settings_alone_do_not_need_a_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, {"HRAG_HTTP_ADDRESS": "127.0.0.1:1"})
    assert pop_ineffective(load(CommonSettings)) == []
