"""JSON in a canonical form: equal values give equal bytes."""

import json
from collections.abc import Mapping
from typing import Any


def encode(values: Mapping[str, Any]) -> bytes:
    """Returns the values as JSON in UTF-8, without blanks, with sorted keys at every depth.

    Raises TypeError for a value that JSON cannot represent.
    """
    return json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
