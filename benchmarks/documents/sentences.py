"""Seeded prose: the same random numbers give the same sentences on every machine.

The prose is that of a manual or a report. It has what a reader of print must get right: long words
that are hyphenated, codes with hyphens, numbers, units with exponents, abbreviations and compounds.
"""

from collections.abc import Sequence
from random import Random
from typing import Self, TypeVar

from benchmarks.documents.source_document import Run, Style, Text

Value = TypeVar("Value")

# The documents, the tables and the layouts depend on this seed. It was chosen before anything was
# measured, and it must not change to make a figure better.
SEED = 33


def _words(text: str) -> list[str]:
    return text.split()


_NOUNS = _words(
    """
    pump filter boiler turbine valve sensor controller manifold gasket bearing coupling
    compressor reservoir membrane cartridge actuator regulator circuit transformer generator
    inspector contractor committee department laboratory municipality warehouse shipment invoice
    contract policy procedure requirement measurement temperature concentration resistance
    configuration administration maintenance specification installation documentation
    certification investigation transmission infrastructure questionnaire population
    neighbourhood vegetation settlement estuary harbour observatory curriculum apprentice
    electrician supervisor passenger timetable assessment forecast
    """
)
_ADJECTIVES = _words(
    """
    hydraulic electrical seasonal preliminary independent considerable intermediate municipal
    industrial temporary permanent adjustable insufficient comprehensive international
    experimental secondary annual defective stainless transparent approximate mechanical
    regional statistical environmental compatible consecutive horizontal vertical internal
    external additional responsible cumulative
    """
)
_VERBS = _words(
    """
    replaces inspects increases reduces documents measures confirms controls interrupts approves
    exceeds determines distributes compensates accelerates supervises publishes recommends
    transports evaluates describes separates requires prevents monitors restores estimates
    influences disconnects postpones
    """
)
_ADVERBS = _words(
    """
    immediately gradually approximately occasionally automatically independently considerably
    annually carefully frequently
    """
)
_COMPOUNDS = ("high-pressure", "long-term", "two-stage", "cost-effective", "well-known", "on-site")
_PLACES = _words(
    """
    Ashcombe Brindlewick Calderholm Dunmorrow Eastwater Fernleigh Granthorpe Holmefield
    Inverdale Kestrelby Lowmarsh Marlstone Northmere Oakhampton Penvale Quarrington
    """
)
_UNITS = ("mm", "kg", "kPa", "kWh", "m/s", "litres", "hours", "%")
_OPENINGS = ("After the inspection,", "In most cases,", "As a rule,", "Since then,", "By contrast,")
_LINKS = ("because", "although", "while", "unless", "so that", "and", "but")
_TITLE_FORMS = (
    "{noun} and {noun2}",
    "{adjective} {noun}",
    "Replacing the {noun}",
    "How the {noun} {verb} the {noun2}",
    "The {adjective} {noun} in {place}",
    "Limits of the {adjective} {noun}",
    "{noun} of the {noun2}",
    "Results from {place}",
)
_CODES = ("E-{0}", "HX-{0}/{1}", "rev. {1}.{2}", "P/N {0}-{1}", "ISO {0}-{2}")


class Writer:
    """Writes words, sentences, titles and paragraphs from one sequence of random numbers."""

    def __init__(self, random: Random) -> None:
        """Takes all decisions from `random`."""
        self._random = random

    @classmethod
    def named(cls, name: str) -> Self:
        """Returns the writer that belongs to a name: always with the same random numbers."""
        return cls(Random(f"{SEED}:{name}"))

    def pick(self, values: Sequence[Value]) -> Value:
        """Returns one of the values."""
        return values[self._random.randrange(len(values))]

    def some(self, values: Sequence[Value], count: int) -> list[Value]:
        """Returns `count` different values of the sequence, in the order of the sequence."""
        chosen = self._random.sample(range(len(values)), count)
        return [values[index] for index in sorted(chosen)]

    def between(self, low: int, high: int) -> int:
        """Returns a number from `low` to `high`."""
        return self._random.randint(low, high)

    def happens(self, share: float) -> bool:
        """Returns True in this share of all calls."""
        return self._random.random() < share

    def noun(self) -> str:
        """Returns a noun."""
        return self.pick(_NOUNS)

    def place(self) -> str:
        """Returns the name of a place."""
        return self.pick(_PLACES)

    def phrase(self) -> str:
        """Returns a noun, often with an adjective: `hydraulic pump`."""
        if self.happens(0.15):
            return f"{self.pick(_COMPOUNDS)} {self.noun()}"
        return f"{self.pick(_ADJECTIVES)} {self.noun()}" if self.happens(0.6) else self.noun()

    def code(self) -> str:
        """Returns a code, for example of an error: `E-4711`."""
        numbers = (self.between(1000, 9999), self.between(10, 99), self.between(1, 9))
        return self.pick(_CODES).format(*numbers)

    def number(self) -> str:
        """Returns a number as it is printed, for example `1,204` or `3.75`."""
        match self.between(0, 3):
            case 0:
                return f"{self.between(1_000, 999_999):,}"
            case 1:
                return f"{self.between(0, 99)}.{self.between(0, 99):02}"
            case _:
                return str(self.between(2, 990))

    def quantity(self) -> str:
        """Returns a number with a unit."""
        return f"{self.number()} {self.pick(_UNITS)}"

    def title(self) -> str:
        """Returns the title of a section."""
        adjective, noun = self.pick(_ADJECTIVES), self.noun()
        title = self.pick(_TITLE_FORMS).format(
            adjective=adjective,
            noun=noun,
            noun2=self.noun(),
            verb=self.pick(_VERBS),
            place=self.place(),
        )
        return title[0].upper() + title[1:]

    def clause(self) -> str:
        """Returns a clause with a subject, a verb and an object."""
        subject = f"{self.pick(('the', 'every', 'this', 'the same'))} {self.phrase()}"
        words = [subject, self.pick(_VERBS), "the", self.phrase()]
        if self.happens(0.3):
            words.insert(1, self.pick(_ADVERBS))
        if self.happens(0.35):
            words.append(self._addition())
        return " ".join(words)

    def _addition(self) -> str:
        match self.between(0, 5):
            case 0:
                return f"by {self.quantity()}"
            case 1:
                return f"in {self.place()}"
            case 2:
                return f"(see {self.code()})"
            case 3:
                return f"from {self.between(1950, 2024)} to {self.between(2025, 2040)}"
            case 4:
                return f"of at most {self.quantity()}"
            case _:
                return f"with the {self.phrase()}"

    def sentence(self) -> str:
        """Returns a sentence of one or two clauses."""
        words = [self.clause()]
        if self.happens(0.2):
            words.insert(0, self.pick(_OPENINGS))
        if self.happens(0.45):
            words += [self.pick(_LINKS), self.clause()]
        text = " ".join(words)
        return f"{text[0].upper()}{text[1:]}."

    def sentences(self, count: int) -> str:
        """Returns this many sentences."""
        return " ".join(self.sentence() for _ in range(count))

    def paragraph(self, sentence_count: int) -> Text:
        """Returns a paragraph; a few have emphasis, code or an exponent."""
        text = self.sentences(sentence_count)
        match self.between(0, 11):
            case 0:
                return (Run(f"{self.phrase().capitalize()}.", Style.BOLD), Run(f" {text}"))
            case 1:
                limit = (Run(f" The limit is {self.between(2, 9)} × 10"), _exponent(self))
                return (Run(text), *limit, Run(f" {self.pick(_UNITS)}."))
            case 2:
                area = (Run(f" The area is {self.number()} m"), Run("2", Style.RAISED))
                return (Run(text), *area, Run("."))
            case 3:
                return (Run(f"{text} The option is "), Run(self._option(), Style.CODE), Run("."))
            case 4:
                return (Run(f"{text} "), Run(self.sentence(), Style.ITALIC))
            case _:
                return (Run(text),)

    def _option(self) -> str:
        return f"{self.noun()}_{self.noun()}={self.between(1, 99)}"


def _exponent(writer: Writer) -> Run:
    return Run(str(writer.between(3, 12)), Style.RAISED)
