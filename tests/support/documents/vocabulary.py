"""Documents of a small vocabulary: leaves share words, and some words are rare."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hrag.engine import PreparedDocument
from hrag.types import CollectionSettings
from hrag.values.tree import ParsedText, Section
from tests.support.documents.fakes import collection_settings, prepared

_COMMON = """
valve pressure pump sensor filter motor engine cooling water steam heating boiler gauge leak
repair manual safety warning code error alarm signal cable switch voltage current battery
charger screen button keyboard printer paper ink colour light shadow window door
"""
WORDS = _COMMON.split()
PHRASES = ("E-4711", "3.11.7", "well-known", "a.b@example.org", "水泵压力", "温度", "naïve", "C++")
_WEIGHTS = [1 / (rank + 1) for rank in range(len(WORDS))]
_SECTION_SENTENCES = 6


def sentence(draw: random.Random) -> str:
    """Returns a random sentence of three to twelve words of WORDS, sometimes with a phrase.

    Earlier words of WORDS are drawn more often.
    """
    words = draw.choices(WORDS, _WEIGHTS, k=draw.randint(3, 12))
    if draw.random() < 0.15:
        words.insert(draw.randrange(len(words)), draw.choice(PHRASES))
    return f"{' '.join(words).capitalize()}. "


def wordy(
    document_id: str,
    seed: int,
    settings: CollectionSettings | None = None,
    sentences: int = 20,
    **options: Any,
) -> PreparedDocument:
    """Returns a document of several sections, with a title and a file name of two words each.

    `options` are further arguments of `prepared`.
    """
    draw = random.Random(seed)
    text, sections = "", []
    for index in range(sentences):
        if index % _SECTION_SENTENCES == 0:
            sections.append(Section(draw.choice(WORDS).title(), 1 + index % 2, len(text)))
        text += sentence(draw)
    parsed = ParsedText(text, tuple(sections))
    document = prepared(document_id, parsed, settings or collection_settings(), seed, **options)
    title = " ".join(draw.choices(WORDS, k=2))
    source = f"/texts/{'_'.join(draw.choices(WORDS, k=2))}.txt"
    content_hash = f"{document.content_hash} {title} {source}"
    return replace(document, title=title, source=source, content_hash=content_hash)


def question(draw: random.Random, words: Sequence[str] = WORDS) -> str:
    """Returns the text of a random query.

    It has one to five of `words`. It may also have a phrase, and a word that is in no document.
    """
    text = draw.choices(words, k=draw.randint(1, 5))
    if draw.random() < 0.4:
        text.append(draw.choice(PHRASES))
    if draw.random() < 0.2:
        text.append("nonesuch")
    return " ".join(text)
