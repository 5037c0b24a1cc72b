"""Seeded yearly reports that are alike, and questions that name the firm and the year.

Forty firms publish a report in each of five years. All reports are written from one template: the
same headings, the same tables and the same sentences, with other numbers, names and places. Pairs
of firms share the first word of their names. A report calls its firm "the Group" nearly everywhere,
and its title is the same as that of every other report of its year. So a passage itself hardly says
whose it is: the first page and the name of the file do, as in a folder of real reports.

A question asks for one fact of one report. Its gold is the sentence or the row of a table that
states the fact; no report has this text again. Everything depends on the seed alone. Another seed
gives other firms, another template, other facts and other questions.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from benchmarks.quality.sets import QualitySet
from hrag.evaluation.questions import GoldSpan, Question, TextSpan
from hrag.types import Document
from hrag.values.formats import MARKDOWN

NAME = "reports"
SEED = 20_261_127
YEARS = range(2019, 2024)
QUESTIONS = 300

_STEMS = [
    "Norvik",
    "Halden",
    "Castor",
    "Merrow",
    "Albion",
    "Tessin",
    "Ostrava",
    "Pellworm",
    "Quarry",
    "Ravenna",
    "Selkirk",
    "Tarifa",
    "Umbra",
    "Velmont",
    "Wexley",
    "Yarrow",
    "Zander",
    "Brennan",
    "Corvo",
    "Dunmore",
]
_TRADES = ("Paper", "Energy", "Foods", "Marine")
_FIRST = [
    "Ana",
    "Bruno",
    "Carla",
    "David",
    "Elena",
    "Felix",
    "Greta",
    "Hugo",
    "Irene",
    "Jonas",
    "Karin",
    "Louis",
    "Marta",
    "Nils",
    "Olga",
    "Pavel",
    "Rosa",
    "Simon",
    "Tanja",
    "Viktor",
]
_LAST = [
    "Adler",
    "Berg",
    "Costa",
    "Dahl",
    "Engel",
    "Fischer",
    "Grant",
    "Hansen",
    "Ivanov",
    "Jensen",
    "Keller",
    "Lund",
    "Moretti",
    "Novak",
    "Olsen",
    "Petrov",
    "Quist",
    "Rossi",
    "Schmid",
    "Torres",
    "Unger",
    "Vogel",
    "Weber",
    "Young",
    "Zeller",
]
_PLACES = [
    "Antwerp",
    "Bergen",
    "Cardiff",
    "Dresden",
    "Esbjerg",
    "Florence",
    "Gdansk",
    "Hamburg",
    "Innsbruck",
    "Jena",
    "Krakow",
    "Lyon",
    "Malmo",
    "Nantes",
    "Oporto",
    "Parma",
    "Rostock",
    "Seville",
    "Trieste",
    "Utrecht",
    "Verona",
    "Warsaw",
    "Zagreb",
    "Zurich",
]
_QUARTERS = ("First quarter", "Second quarter", "Third quarter", "Fourth quarter")

_COLUMNS = ("measure", "unit", "subject", "detail", "partner")
# Chapter | title of the section | measured value | unit | subject | detail | partner
_TOPICS = """\
Business | Products | number of new products | products | product development | packaging | \
retailers
Business | Customers | number of active customers | customers | customer service | complaints | \
wholesalers
Business | Prices | average selling price | euros per tonne | pricing | discounts | buyers
Business | Research | spending on research | million euros | research | patents | universities
Business | Acquisitions | price of acquired companies | million euros | acquisitions | \
integration | sellers
Operations | Production | volume of production | thousand tonnes | manufacturing | \
machine downtime | contractors
Operations | Procurement | cost of raw materials | million euros | procurement | \
contracts of supply | suppliers
Operations | Logistics | cost of freight | million euros | logistics | delivery times | carriers
Operations | Warehouses | storage capacity | thousand pallets | warehousing | stocks | landlords
Operations | Information technology | spending on software | million euros | \
information technology | cyber security | software vendors
Financial review | Revenue | revenue | million euros | sales | exports | distributors
Financial review | Operating profit | operating profit | million euros | cost control | margins | \
consultants
Financial review | Cash flow | free cash flow | million euros | the treasury | working capital | \
banks
Financial review | Debt | net debt | million euros | borrowing | interest rates | lenders
Financial review | Taxes | income tax | million euros | taxation | deferred taxes | tax authorities
Financial review | Dividends | dividend for each share | cents | investor relations | \
the buyback of shares | shareholders
Financial review | Leases | lease liabilities | million euros | leasing | rental agreements | \
lessors
Financial review | Pensions | pension obligations | million euros | pension plans | \
life expectancy | trustees
People | Employees | number of employees | employees | human resources | recruitment | trade unions
People | Safety | number of accidents at work | accidents | occupational safety | \
protective clothing | inspectors
People | Training | hours of training | hours | training | apprenticeships | vocational schools
People | Diversity | share of women in management | per cent | diversity | parental leave | \
associations
Environment | Emissions | emissions of carbon dioxide | thousand tonnes | climate protection | \
filters | regulators
Environment | Water | consumption of water | thousand cubic metres | water management | \
waste water | municipalities
Environment | Waste | amount of waste | tonnes | recycling | hazardous waste | disposal companies
Environment | Power | consumption of electricity | gigawatt hours | power supply | solar panels | \
grid operators
Governance | Board of directors | number of board meetings | meetings | the work of the board | \
succession | advisers
Governance | Audit | fees of the auditor | thousand euros | internal audit | controls | auditors
"""
_STATED = "The {measure} came to {value} {unit}, after a year in which {partner} were cautious."
_LED = "{person} was responsible for {subject} and reported to the board each quarter."
_PROJECT = "The largest project concerned {detail} and was carried out in {place} by {person}."
_OPENING = "This section describes {subject} and the main events of the reporting period."
_COMMON = (
    "Compared with the previous year, {detail} improved by {percent} per cent.",
    "The Group continued its policy on {detail}, which the board had approved in {month}.",
    "Discussions with {partner} were constructive and led to agreements in {count} countries.",
    "Management regards {subject} as essential for the long-term success of the Group.",
    "A review of {detail} found no material weaknesses; {count} recommendations were adopted.",
    "Further measures concerning {detail} are planned for the coming financial year.",
    "As in earlier periods, {partner} were informed in good time and in writing.",
    "The effects of inflation on {subject} were limited to {percent} per cent.",
    "The Group and its competitor {rival} follow similar approaches to {subject}.",
)
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "September",
    "October",
    "November",
]
# Each kind of fact: the template of its sentence, and the question about it.
_ASKED = {
    _STATED: "What was the {measure} of {firm} in {year}?",
    _LED: "Who was responsible for {subject} at {firm} in {year}?",
    _PROJECT: "Where did {firm} carry out its largest project on {detail} in {year}?",
}
_ASKED_ROW = "How high was the {measure} of {firm} in the {quarter} of {year}?"


@dataclass(frozen=True, slots=True)
class Report:
    """One report: its document, and the question and the gold span of each of its facts."""

    document: Document
    facts: tuple[tuple[str, int, int], ...]

    @property
    def text(self) -> str:
        """The Markdown text of the report."""
        return str(self.document.body)


@cache
def firms(seed: int = SEED) -> tuple[str, ...]:
    """Returns the names of the forty firms."""
    draw = random.Random(seed)
    return tuple(f"{stem} {trade}" for stem in _STEMS for trade in draw.sample(_TRADES, 2))


@cache
def reports(seed: int = SEED) -> tuple[Report, ...]:
    """Returns the two hundred reports, by firm and year."""
    return tuple(_report(firm, year, seed) for firm in firms(seed) for year in YEARS)


@cache
def questions(seed: int = SEED) -> tuple[Question, ...]:
    """Returns the questions: facts drawn at random of those whose text no report has again."""
    facts = [(report, fact) for report in reports(seed) for fact in report.facts]
    lines = Counter(line for report in reports(seed) for line in report.text.splitlines())
    sentences = Counter(report.text[start:end] for report, (_, start, end) in facts)
    unique = [
        (report, fact)
        for report, fact in facts
        if sentences[gold := report.text[fact[1] : fact[2]]] == 1 and lines[gold] <= 1
    ]
    drawn = random.Random(seed).sample(unique, QUESTIONS)
    return tuple(
        Question(
            f"report-{number}",
            text,
            (GoldSpan(TextSpan(report.document.document_id, start, end)),),
        )
        for number, (report, (text, start, end)) in enumerate(drawn, 1)
    )


def report_set(seed: int = SEED) -> QualitySet:
    """Returns the reports and the questions as a set."""
    documents = tuple(report.document for report in reports(seed))
    return QualitySet(NAME, NAME, lambda: documents, questions(seed))


def _report(firm: str, year: int, seed: int) -> Report:
    key = f"{firm.lower().replace(' ', '-')}-{year}"
    draw = random.Random(f"{seed} {key}")
    parts: list[str] = []
    facts: list[tuple[str, int, int]] = []
    length = 0
    for piece, question in _pieces(firm, year, seed, draw):
        if question:
            facts.append((question, length, length + len(piece.rstrip())))
        parts.append(piece)
        length += len(piece)
    document = Document(
        body="".join(parts),
        document_id=key,
        title=f"Annual report {year}",
        source=f"reports/{key}.md",
        mime_type=MARKDOWN,
    )
    return Report(document, tuple(facts))


def _pieces(firm: str, year: int, seed: int, draw: random.Random) -> Iterator[tuple[str, str]]:
    """Yields the pieces of a report's text, each with the question that it answers, or ""."""
    yield f"# Annual report {year}\n\n", ""
    yield f"{firm} plc, {draw.choice(_PLACES)}. Report of the board for the year {year}.\n\n", ""
    chapter = ""
    for line in _TOPICS.splitlines():
        above, title, *columns = line.split(" | ")
        if above != chapter:
            chapter = above
            yield f"## {chapter}\n\n", ""
        topic = dict(zip(_COLUMNS, columns, strict=True))
        yield f"### {title}\n\n", ""
        yield from _section(topic | {"firm": firm, "year": str(year)}, seed, draw)


def _section(topic: dict[str, str], seed: int, draw: random.Random) -> Iterator[tuple[str, str]]:
    # The template, which is the order of sentences, is the same in all reports.
    layout = random.Random(f"{seed} {topic['measure']}")
    templates = [*layout.sample(_COMMON, 5), *_ASKED]
    layout.shuffle(templates)
    for template in (_OPENING, *templates):
        sentence = template.format(**topic, **_values(topic["firm"], seed, draw))
        question = _ASKED.get(template, "").format(**topic)
        yield f"{sentence} ", question
    yield "\n\n", ""
    if layout.random() < 0.5:
        yield from _table(topic, draw)


def _table(topic: dict[str, str], draw: random.Random) -> Iterator[tuple[str, str]]:
    yield f"| Period | {topic['measure'].capitalize()} | Change in % | Remark |\n", ""
    yield "| --- | --- | --- | --- |\n", ""
    for quarter in _QUARTERS:
        change, place = draw.randrange(-99, 100) / 10, draw.choice(_PLACES)
        row = f"| {quarter} | {_number(draw)} | {change} | mainly {place} |\n"
        yield row, _ASKED_ROW.format(quarter=quarter.lower(), **topic)
    yield "\n", ""


def _values(firm: str, seed: int, draw: random.Random) -> dict[str, str]:
    return {
        "value": _number(draw),
        "person": f"{draw.choice(_FIRST)} {draw.choice(_LAST)}",
        "place": draw.choice(_PLACES),
        "percent": f"{draw.randrange(1, 99) / 10}",
        "count": str(draw.randrange(2, 12)),
        "month": draw.choice(_MONTHS),
        "rival": draw.choice([other for other in firms(seed) if other != firm]),
    }


def _number(draw: random.Random) -> str:
    return f"{draw.randrange(1_000, 100_000) / 10:,.1f}"
