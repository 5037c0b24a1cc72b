"""Finds the parameters of a request that an endpoint refuses, in the content of its refusal.

Endpoints know different parameters of OpenAI's protocol. Many refuse a request with a parameter
that they do not know, with the status 400 or 422, and name the parameter in a form of their own:
in OpenAI's field `param`, in pydantic's `loc`, or only in a sentence. So each object of the content
is read as one statement, and a parameter is refused if a statement names it. Values of the request
that the content repeats (`input`) are not read.

A parameter that limits a length is refused only if the statement says that the parameter is not
known or not supported. A statement such as "max_tokens is too large" refuses the value: without the
parameter, the endpoint would accept the request, but the limit would be lost.
"""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

# The fields whose values belong to a statement. Their names are those of OpenAI, pydantic, Google,
# Cohere, Go and RFC 9457.
_FIELDS = frozenset(
    {"message", "msg", "detail", "details", "error", "errors", "param", "loc", "type", "code"}
    | {"title", "description", "reason", "status"}
)
_LENGTH_LIMITS = frozenset({"max_completion_tokens", "max_tokens"})
_NOT_KNOWN = re.compile(
    r"unsupported|n[o']t(?: \w+)? (?:support|permit|allow|accept|recogni[sz]ed|implement)"
    r"|un(?:known|recogni[sz]ed|expected)|forbidden|additional propert|extra (?:field|input|param)"
    r"|extra_forbidden|cannot find field|no such|not a valid|invalid (?:field|parameter|argument)"
    r"|does not exist|deprecated",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"exceed|too (?:large|small|high|low|many)|at (?:most|least)|range|between"
    r"|(?:greater|less|larger|smaller|higher|lower) than",
    re.IGNORECASE,
)


def refused_parameters(content: str, sent: Collection[str]) -> frozenset[str]:
    """Returns the parameters of `sent` that the content of a refusal names as refused."""
    found: set[str] = set()
    for statement in _statements(content):
        named = {name for name in sent if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", statement)}
        if not _NOT_KNOWN.search(statement) or _VALUE.search(statement):
            named -= _LENGTH_LIMITS
        found |= named
    return frozenset(found)


def _statements(content: str) -> Iterator[str]:
    """Yields the text of each object in the content; the content itself if it is not JSON."""
    try:
        values: list[Any] = [json.loads(content)]
    except (ValueError, RecursionError):
        yield content
        return
    while values:
        value = values.pop()
        if isinstance(value, list):
            values += value
        elif isinstance(value, dict):
            read = [part for name, part in value.items() if name in _FIELDS]
            values += [part for part in read if isinstance(part, dict | list)]
            yield " ".join(text for part in read for text in _texts(part))
        elif isinstance(value, str):
            yield value


def _texts(value: Any) -> list[str]:
    """Returns a string, and the strings of a list, as pydantic writes the place of a parameter."""
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str)]
