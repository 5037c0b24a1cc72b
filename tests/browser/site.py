"""Documents for the browser tests: a small collection has every kind of document."""

from collections.abc import Iterator

from hrag.client import Client
from hrag.types import Document, Page, SettingsRequest, SummaryUnit

TENANT = "acme"
GUIDE = "guide"
# This is an alias of GUIDE.
ALIAS = "current"
MANY = "many"
MANY_DOCUMENTS = 30
LEVELS = (32, 64, 128, 256)

ATTACK = '<img src=x onerror="window.attacked=1"><script>window.attacked=1</script>'
ATTACK_LINK = "javascript:window.attacked=1"
ATTACK_ID = "quote.attack-1"

PUMP = "The pump of the cooling circuit is serviced every four weeks."
EMOJI = "😀🚒 "
PETS = f"{EMOJI * 12}Dogs bark. {EMOJI * 12}Cats sleep. Birds 🐦 sing."
CHINESE = "第三十九条 劳动者有下列情形之一的，用人单位可以解除劳动合同。"


def manual() -> str:
    """Returns Markdown with sections, which is cut into several top-level chunks.

    Exactly one sentence contains the word `gasket`.
    """
    parts = ["# Pump manual\n"]
    for number in range(12):
        parts.append(f"## Section {number}\n")
        parts += [f"Valve {number}.{line} holds the pressure of line {line}. " for line in range(9)]
        parts.append("Replace the gasket with torque 40. " if number == 7 else "")
        parts.append("\n")
    return f"{''.join(parts)}\n{PUMP}\n"


def documents() -> Iterator[Document]:
    """Yields the documents of the collection GUIDE."""
    yield Document(
        manual(),
        "manual.md",
        source="docs/manual.md",
        mime_type="text/markdown",
        metadata={"team": "platform", "year": 2026, "date": "2026-03-01", "reviewed": True},
    )
    yield Document(PETS, "pets", "Pets 😀")
    yield Document(CHINESE * 3, "law", "劳动合同法", metadata={"team": "法务", "year": 2012})
    yield Document((Page("Invoices are due in May.", 4), Page("Refunds take 9 days.", 5)), "paged")
    yield Document(
        f"{ATTACK} attacked words {ATTACK}",
        ATTACK_ID,
        title=ATTACK,
        source=ATTACK_LINK,
        metadata={ATTACK: ATTACK, "url": ATTACK_LINK},
    )


def fill(client: Client) -> None:
    """Stores the collections GUIDE and MANY, their documents and the alias."""
    settings = SettingsRequest(level_sizes=LEVELS, summaries=SummaryUnit.SECTION)
    client.create_collection(TENANT, GUIDE, settings)
    client.create_collection(TENANT, MANY, SettingsRequest(level_sizes=LEVELS))
    for document in documents():
        client.ingest(TENANT, document, collection=GUIDE)
    client.set_alias(TENANT, ALIAS, GUIDE)
    for number in range(MANY_DOCUMENTS):
        client.ingest(TENANT, Document(f"Note {number}.", f"note-{number:02}"), collection=MANY)
