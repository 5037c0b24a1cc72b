"""Which settings have no effect unless another setting is set.

A person who sets such a setting alone expects something that will not happen. So services and
commands warn about it when they start. The table below is complete: a setting that it does not name
always has an effect on the service that reads it. The variables `HRAG_INSECURE_...` are not in the
table, because they only permit something.
"""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from hrag.config import AuditSettings, EngineSettings, GatewaySettings

_HTTP = "--http"
_OCR = "the extra ocr"
# A module of the extra. The indexer recognises text if this module is installed.
_OCR_MODULE = "rapidocr"


class Requirement(NamedTuple):
    """Settings, and what they need to have an effect: one of `needs`.

    A need is a variable that must not be empty, or a variable with the value that it must have. Two
    needs are no variables: the gateway, and an extra of hrag that must be installed.
    """

    variables: tuple[str, ...]
    needs: tuple[str, ...]


REQUIREMENTS = (
    Requirement(
        (
            *("HRAG_POSTGRES_DSN", "HRAG_POSTGRES_READ_DSN"),
            *("HRAG_POSTGRES_CONNECTIONS", "HRAG_POSTGRES_HOME_LEAVES"),
        ),
        ("HRAG_ENGINE=postgres",),
    ),
    Requirement(
        (
            *("HRAG_DATA_DIR", "HRAG_DISK_RESERVE_BYTES"),
            *("HRAG_SEGMENT_MIN_LEAVES", "HRAG_MEMORY_BYTES", "HRAG_VECTOR_MEMORY_BYTES"),
        ),
        ("HRAG_ENGINE=embedded",),
    ),
    Requirement(
        (
            *("HRAG_HTTP_ADDRESS", "HRAG_HTTP_METRICS_ADDRESS", "HRAG_HTTP_HOSTS"),
            *("HRAG_HTTP_ORIGINS", "HRAG_HTTP_MAX_BUFFERED_BYTES"),
        ),
        (_HTTP,),
    ),
    Requirement(
        (
            *("HRAG_OPENAI_EMBEDDING_MODEL", "HRAG_OPENAI_DIMENSIONS", "HRAG_OPENAI_TIMEOUT_S"),
            *("HRAG_OPENAI_REQUEST_TEXTS", "HRAG_OPENAI_REQUEST_BYTES"),
        ),
        ("HRAG_EMBEDDER=openai", "HRAG_PREVIOUS_EMBEDDER=openai"),
    ),
    Requirement(
        (
            *("HRAG_PREVIOUS_OPENAI_API_KEY", "HRAG_PREVIOUS_OPENAI_BASE_URL"),
            *("HRAG_PREVIOUS_OPENAI_EMBEDDING_MODEL", "HRAG_PREVIOUS_OPENAI_DIMENSIONS"),
        ),
        ("HRAG_PREVIOUS_EMBEDDER=openai",),
    ),
    Requirement(
        (
            *("HRAG_CHAT_BASE_URL", "HRAG_CHAT_API_KEY", "HRAG_CHAT_TIMEOUT_S"),
            *("HRAG_CHAT_REASONING_TAGS", "HRAG_ANSWER_MAX_TOKENS", "HRAG_ANSWER_PASSAGE_TOKENS"),
            *("HRAG_ANSWER_PROMPT_FILE", "HRAG_STANDALONE_TIMEOUT_S"),
            *("HRAG_MAX_CONCURRENT_ANSWERS", "HRAG_SENTENCE_CACHE_ENTRIES"),
            "HRAG_SUMMARY_MAX_TOKENS",
        ),
        ("HRAG_CHAT_MODEL",),
    ),
    Requirement(
        (
            *("HRAG_RERANK_FORM", "HRAG_RERANK_MODEL", "HRAG_RERANK_API_KEY", "HRAG_RERANK_TOP"),
            *("HRAG_RERANK_LEAVES", "HRAG_RERANK_TEXT_TOKENS", "HRAG_RERANK_TIMEOUT_S"),
        ),
        ("HRAG_RERANK_BASE_URL",),
    ),
    Requirement(("SMALL_TO_BIG_RETURN_LEVEL",), ("HIERARCHICAL_CHUNKS_ENABLED=true",)),
    # A tenant in the file without a burst has the burst of this setting.
    Requirement(("HRAG_TENANT_BURST",), ("HRAG_TENANT_CALLS_PER_S", "HRAG_TENANT_QUOTAS_FILE")),
    Requirement(("HRAG_API_KEYS_FILE",), ("HRAG_AUTH=api_key",)),
    Requirement(
        (
            *("HRAG_JWT_JWKS_FILE", "HRAG_JWT_ISSUER", "HRAG_JWT_AUDIENCE"),
            *("HRAG_JWT_LEEWAY_S", "HRAG_JWT_TENANTS_CLAIM", "HRAG_JWT_ROLE_CLAIM"),
        ),
        ("HRAG_AUTH=jwt",),
    ),
    Requirement(
        ("HRAG_METRICS_TOKEN_FILE", "HRAG_METRICS_TLS"),
        (
            *("HRAG_INDEXER_METRICS_ADDRESS", "HRAG_RETRIEVER_METRICS_ADDRESS"),
            "HRAG_HTTP_METRICS_ADDRESS",
        ),
    ),
    Requirement(
        ("HRAG_OCR_MAX_PAGES", "HRAG_OCR_PROCESSES", "HRAG_OCR_MEMORY_BYTES", "HRAG_OCR_TIMEOUT_S"),
        (_OCR,),
    ),
)


class Ineffective(NamedTuple):
    """Variables that are set and have no effect, and what they need; one line for people."""

    variables: tuple[str, ...]
    needs: tuple[str, ...]

    def __str__(self) -> str:
        has = "has" if len(self.variables) == 1 else "have"
        return f"{', '.join(self.variables)} {has} no effect without {' or '.join(self.needs)}"


def pop_ineffective(
    *settings: EngineSettings | AuditSettings, is_whole: bool = False
) -> list[Ineffective]:
    """Removes the variables that are set and have no effect from the environment; returns them.

    `settings` are the settings of everything that the caller starts. If `is_whole`, it starts all
    services, so that the settings of a gateway that it does not start have no effect either. A
    variable with its default value is not returned. The variables are removed so that no child
    process reports them again.
    """
    set_values = _values_in_environment(GatewaySettings) if is_whole else {}
    values: dict[str, Any] = dict(os.environ)
    for one in settings:
        for name, field in type(one).model_fields.items():
            variable, value = str(field.validation_alias), getattr(one, name)
            values[variable] = value
            set_values.pop(variable, None)
            if value != field.default:
                set_values[variable] = value
    values[_HTTP] = any(isinstance(one, GatewaySettings) for one in settings)
    values[_OCR] = find_spec(_OCR_MODULE)
    found = []
    for variables, needs in REQUIREMENTS:
        unused = tuple(variable for variable in variables if variable in set_values)
        if unused and not any(_is_met(need, values) for need in needs):
            found.append(Ineffective(unused, needs))
            for variable in unused:
                os.environ.pop(variable, None)
    return found


def _values_in_environment(cls: type[EngineSettings]) -> dict[str, Any]:
    """Returns the variables of the class that are in the environment and not their default."""
    texts = {
        str(field.validation_alias): (os.environ.get(str(field.validation_alias)), field.default)
        for field in cls.model_fields.values()
    }
    return {name: text for name, (text, default) in texts.items() if text and text != str(default)}


def _is_met(need: str, values: Mapping[str, Any]) -> bool:
    name, _, wanted = need.partition("=")
    value = values.get(name)
    return str(value).lower() == wanted if wanted else bool(value)
