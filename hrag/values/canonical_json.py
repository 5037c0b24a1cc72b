"""JSON in one form: equal values give equal bytes."""

import json
from collections.abc import Mapping
from typing import Any


def encode(values: Mapping[str, Any]) -> bytes:
    """UTF-8 without blanks, keys sorted at every depth; raises TypeError for what is no JSON."""
    return json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
