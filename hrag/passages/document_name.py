"""The name of a document: the words of its file's name and of the folders around the file.

A file's name often says what no line of its text says: whose report it is, and of which year. So
the words of the name that the title lacks are terms of each leaf, like the title and the section
path. They are not embedded.

The name comes from the source of the document, which is a path or a URL. A source may also have
folders above the folder that was ingested. Their words would be terms of every leaf of the
collection. A term that every leaf has can no longer distinguish leaves, so a search for `work`
would suffer if everything is in the folder `/home/anna/work`. The document id says where the
ingested folder begins, because `hrag ingest` and the explorer make the id from the path inside that
folder. So a folder belongs to the name only if the id repeats it. The name of the file belongs to
the name of every document, whatever its id. Without a source, the id is the name if it ends with
the extension of a file. Other ids are keys, and words of keys would only find documents by
accident.

The names are a part of the rules of an analyzer's version. A change in this module that changes
names needs a new version of the analyzers.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise
from urllib.parse import unquote

from hrag_fast import inside_word

# A longer name is cut to this many characters, like a longer heading. The name of the file and the
# folders nearest to the file are kept.
MAX_NAME_CHARS = 256

_SEPARATOR = " > "
_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#]*(?P<path>[^?#]*)", re.IGNORECASE)
_FOLDER_ENDS = re.compile(r"[/\\]")
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._:-]")
_HASH = re.compile(r"-[0-9a-f]{8}\Z")
_WORD = re.compile(r"[^\W_]+")
# A part of a word with fewer characters, such as the `v` of `v2`, says nothing alone.
_MIN_PART_CHARS = 2

# An extension says how a file is read, not what it is about. These lists have the extensions of the
# formats that hrag read when version 2 of the analyzers was made, of the old Office formats and of
# archives. Any other extension is a word of the name.
_DOCUMENTS = """
txt text md markdown pdf html htm xhtml doc docx ppt pptx xls xlsx xlsm ods odt odp epub csv tsv rst
eml msg rtf ipynb tex latex ltx json xml srt vtt png jpg jpeg tif tiff
"""
_CODE = """
py pyi js mjs cjs jsx ts tsx c h cc cpp cxx hh hpp cs go java kt lua pl pm php rb rs scala sh bash
sql swift
"""
_ARCHIVES = frozenset(("zip", "tar", "gz", "tgz"))
_LINES = frozenset(("jsonl", "ndjson"))
_EXTENSIONS = _ARCHIVES | _LINES | frozenset(f"{_DOCUMENTS} {_CODE}".split())


def document_name(source: str, document_id: str) -> str:
    """Returns the name of a document, outermost folder first: `reports > 2023 > acme_annual`.

    The last part is the name of the file without its extension. The folders are those that the
    document id repeats. If a word of the name consists of several words, as `AcmeReport2023` does,
    these words follow at the end. Returns "" if the document has no name. The document of a line of
    JSON Lines has none, because the name of the file is not the name of each document in it.
    """
    path = _path_of(source)
    if not source and _extension(document_id) in _EXTENSIONS:
        path = document_id.split(":")
    if not path:
        return ""
    repeated = _repeated_in_id(path, document_id)
    if not repeated and _extension(path[-1]) in _LINES:
        return ""
    *folders, file = path[-max(repeated, 1) :]
    named = [_without_extension(folder, _ARCHIVES) for folder in folders]
    named.append(_without_extension(file, _EXTENSIONS))
    name = _SEPARATOR.join(_nearest([unicodedata.normalize("NFC", part) for part in named]))
    return _SEPARATOR.join(filter(None, (name, " ".join(_words_inside(name)))))


def _path_of(source: str) -> list[str]:
    """Returns the folders in a path or URL, and its last part, without empty parts and dots."""
    if url := _URL.match(source):
        parts = [unquote(part) for part in url["path"].split("/")]
    else:
        parts = _FOLDER_ENDS.split(source)
    return [part for part in parts if part.strip(". ")]


def _repeated_in_id(path: Sequence[str], document_id: str) -> int:
    """Returns how many of the last parts of a path the document id repeats.

    An id has ":" between the parts. It has "_" in place of each character that an id must not
    contain, and then it ends with a hash of the path. If the path begins with such a character, the
    id begins with "file".
    """
    count = 0
    for part, in_id in zip(reversed(path), reversed(document_id.split(":")), strict=False):
        expected = _NOT_IN_ID.sub("_", part)
        spellings = expected, f"file{expected}"
        if in_id not in spellings and (count or _HASH.sub("", in_id) not in spellings):
            break
        count += 1
    return count


def _extension(file: str) -> str:
    """Returns the extension of a file in lower case, without the dot; "" if it has none."""
    stem, dot, extension = file.rpartition(".")
    return extension.lower() if stem.strip(".") and dot else ""


def _without_extension(file: str, extensions: frozenset[str]) -> str:
    """Returns the name of a file without its extension, if this is one of `extensions`.

    If a name has several of these extensions, for example `table.csv.gz`, all are left out.
    """
    while _extension(file) in extensions:
        file = file.rpartition(".")[0]
    return file


def _nearest(parts: Sequence[str]) -> list[str]:
    """Returns the last parts, as many as fit into MAX_NAME_CHARS characters.

    If even the last part does not fit, returns its beginning.
    """
    kept = [parts[-1][:MAX_NAME_CHARS]]
    chars = len(kept[0])
    for part in reversed(parts[:-1]):
        chars += len(_SEPARATOR) + len(part)
        if chars > MAX_NAME_CHARS:
            break
        kept.insert(0, part)
    return kept


def _words_inside(name: str) -> Iterator[str]:
    """Yields the parts of the words that consist of several words: `Acme` and `2023` of `Acme2023`.

    A part begins at a capital letter after a small letter, at the last of several capital letters
    before a small letter (`PDFReader`), and where letters and digits meet. Scripts without capital
    letters are not divided.
    """
    for match in _WORD.finditer(name):
        word = match[0]
        if word.isdigit() or (word.isalpha() and word[1:].islower()):
            continue  # Most words are like this, and the next check would take longer.
        parts = _parts(word)
        if len(parts) > 1:
            yield from (part for part in parts if len(part) >= _MIN_PART_CHARS)


def _parts(word: str) -> list[str]:
    starts = [start for start in range(1, len(word)) if _begins_part(word, start)]
    return [word[start:end] for start, end in pairwise([0, *starts, len(word)])]


def _begins_part(word: str, start: int) -> bool:
    """Returns True if a part of a word begins at this offset.

    A border between scripts of which one is written without spaces is not counted, because the
    analyzer divides a text there anyway.
    """
    before, first, after = word[start - 1], word[start], word[start + 1 : start + 2]
    begins = (
        before.isdigit() != first.isdigit()
        or (before.islower() and first.isupper())
        or (before.isupper() and first.isupper() and after.islower())
    )
    return begins and inside_word(word, start)
