"""Reads documents as the indexer does, without a store: `python -m indexer_svc.file_reader`.

`hrag read` starts this program. Standard input is a sequence of documents. Each document has four
bytes with the length of a message, in big-endian order, and then a message `hrag.v1.Document`.
Standard output has one line of JSON for each document, in the same order: its text, title, pages,
sections, metadata and report, or an error. The program ends at the end of its input.

Settings are those of the indexer, from the environment. So a file that is read here is read by an
indexer with the same settings, in the same way and within the same limits.
"""

import json
import os
import struct
import sys
from contextlib import closing
from dataclasses import asdict
from functools import partial
from typing import Any, BinaryIO

from hrag.config import IndexerSettings, SettingsError, load
from hrag.observe import log
from hrag.v1 import types_pb2
from hrag.values.deadline import NEVER
from hrag.values.errors import HragError
from hrag.wire.common import document_from
from indexer_svc.extract import extract
from indexer_svc.parsers.parser_pool import Parse, ParserPool
from indexer_svc.text_recognition import CallRecognition, open_text_recognition

_LENGTH = struct.Struct(">I")
_TENANT = "local"  # The parsers are divided among tenants. This program has only one tenant.


def main() -> None:
    """Reads documents until standard input ends. Exits with code 2 if a setting is invalid."""
    # Standard output is for the answers only. What libraries print there goes to standard error.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        settings = load(IndexerSettings)
    except SettingsError as error:
        print(f"reader: {error}", file=sys.stderr)  # noqa: T201 - The logs are not configured yet.
        sys.exit(2)
    # Failures are answers, so a log of them would only repeat them.
    log.configure("reader", "console", "critical")
    parsers = ParserPool(2, settings.parser_memory_bytes, settings.parser_timeout_s)
    with closing(parsers), open_text_recognition(settings) as text_recognition:
        parse = partial(parsers.parse, _TENANT, NEVER)
        recognition = text_recognition.for_call(_TENANT, NEVER)
        while (message := _received(sys.stdin.buffer)) is not None:
            answer = json.dumps(_read(message, settings.max_document_bytes, parse, recognition))
            answers.write(answer.encode() + b"\n")
            answers.flush()


def _received(file: BinaryIO) -> bytes | None:
    """Returns the next message; None at the end of the input."""
    length = file.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    return file.read(_LENGTH.unpack(length)[0])


def _read(
    message: bytes, max_bytes: int, parse: Parse, recognition: CallRecognition
) -> dict[str, Any]:
    """Returns what was read of a document, as values of JSON, or the error."""
    try:
        document = document_from(types_pb2.Document.FromString(message))
        extracted = extract(document, max_bytes, parse, recognition)
    except HragError as error:
        described = {"type": type(error).__name__, "message": error.message, "field": error.field}
        return {"error": described}
    parsed = extracted.parsed
    return {
        "title": document.title or extracted.title,
        "report": asdict(extracted.report),
        "sections": [asdict(section) for section in parsed.sections],
        "pages": [page._asdict() for page in parsed.pages],
        "metadata": dict(extracted.metadata),
        "text": parsed.text,
    }


if __name__ == "__main__":
    main()
