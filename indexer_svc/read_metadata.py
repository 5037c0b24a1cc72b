"""Adds the fields that a file itself contains to the metadata that the client has sent.

Such fields are, for example, the sender and the date of a mail, or the front matter of Markdown.
The client's metadata has precedence, and the limits of metadata apply to the sum. The file is
untrusted, so a field that cannot be added is left out, never an error.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from hrag.values import canonical_json
from hrag.values.documents import ROOT_KEY
from hrag.values.limits import MAX_METADATA_BYTES, MAX_METADATA_VALUES, value_count
from hrag.values.read_report import ReadReport
from indexer_svc.parsers.parsed_file import without_metadata

# With `ingest_root`, a file could make `hrag ingest --prune` delete its document, or keep it.
_RESERVED = (ROOT_KEY,)


class CompleteMetadata(NamedTuple):
    """The metadata to store, its canonical JSON, and the report with the fields left out."""

    metadata: Mapping[str, Any]
    metadata_json: bytes
    report: ReadReport


def complete_metadata(
    sent: Mapping[str, Any],
    sent_json: bytes,
    read: Mapping[str, str | list[str]],
    report: ReadReport,
) -> CompleteMetadata:
    """Returns the metadata that a client has sent, with the fields that were read in the file.

    `sent_json` is the canonical JSON of `sent`. A field is added if the client has sent none of its
    name, and if the metadata stays within its limits. Fields are added in the order of `read`. The
    returned report also says how many fields do not fit, and names the first of them.
    """
    metadata, size, count = dict(sent), len(sent_json), value_count(sent)
    unfit = []
    for name, value in read.items():
        if name in sent or name in _RESERVED:
            continue
        field_size = _json_size(name, value)
        field_count = value_count(value)
        fits = size + field_size <= MAX_METADATA_BYTES
        if field_size and fits and count + field_count <= MAX_METADATA_VALUES:
            metadata[name] = value
            size, count = size + field_size, count + field_count
        else:
            unfit.append(name)
    if unfit:
        report = without_metadata(report, unfit)
    if len(metadata) == len(sent):
        return CompleteMetadata(sent, sent_json, report)
    return CompleteMetadata(metadata, canonical_json.encode(metadata), report)


def _json_size(name: str, value: str | list[str]) -> int:
    """Returns the bytes that a field takes in canonical JSON; 0 if UTF-8 cannot encode its text."""
    try:
        # The braces around the field are left out, and a comma separates it from other fields.
        return len(canonical_json.encode({name: value})) - len("{}") + len(",")
    except UnicodeEncodeError:  # An escape sequence in YAML or JSON may give a lone surrogate.
        return 0
