"""Compares output that a page shows with output that was printed.

What differs from run to run is compared by its type only: times, ids of requests and processes,
and scores. The text "..." in shown JSON stands for any value.
"""

import json
from typing import Any

from tests.support.manuals import OutputBlock

_ANY = "..."
_VARYING = frozenset({"timestamp", "ms", "pid", "request_id", "requestId", "score"})


def unprinted(block: OutputBlock, output: str) -> list[str]:
    """Returns the lines of a block that `output` does not contain; in JSON a line is a document.

    Raises AssertionError if a block of JSON is empty or contains anything but JSON objects.
    """
    lines = block.text.strip().splitlines()
    if block.language != "json":
        return [line for line in lines if line.strip() not in output]
    printed, _ = _documents(output)
    shown, rest = _documents(block.text)
    assert (bool(shown), rest) == (True, ""), f"a block must be JSON objects:\n{block.text}"
    return [json.dumps(one) for one in shown if not any(matches(one, other) for other in printed)]


def matches(shown: Any, printed: Any) -> bool:
    """Returns True if the printed JSON value is the shown one, except for what varies."""
    if shown == _ANY:
        return True
    if isinstance(shown, dict) and isinstance(printed, dict):
        return shown.keys() == printed.keys() and all(
            type(shown[name]) is type(printed[name])
            if name in _VARYING and shown[name] != _ANY
            else matches(shown[name], printed[name])
            for name in shown
        )
    if isinstance(shown, list) and isinstance(printed, list):
        return len(shown) == len(printed) and all(map(matches, shown, printed))
    return bool(shown == printed)


def _documents(text: str) -> tuple[list[dict[str, Any]], str]:
    """Returns the JSON objects in a text, and the text between them."""
    decoder, documents, rest, at = json.JSONDecoder(), [], "", 0
    while (start := text.find("{", at)) >= 0:
        rest += text[at:start]
        try:
            document, at = decoder.raw_decode(text, start)
        except ValueError:
            rest, at = f"{rest}{{", start + 1
        else:
            documents.append(document)
    return documents, (rest + text[at:]).strip()
