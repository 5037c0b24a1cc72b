"""The examples of the guide run with the address of a test, and the example programs run."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from haystack import component
from haystack.dataclasses import ChatMessage
from langchain_core.language_models import FakeListChatModel
from llama_index.core.llms import MockLLM

from hrag.client import Client
from hrag.integrations.citation import citation
from hrag.types import Document, SettingsRequest
from tests.frameworks.conftest import QUERY, TENANT
from tests.support.documents.pdfs import pdf_of
from tests.support.servers.processes import Running

pytestmark = pytest.mark.frameworks

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDE = (DOCS / "guide" / "frameworks.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
PAGE_BLOCKS = [block for block in BLOCKS if "get_page_image" in block]


def test_the_metadata_of_a_passage_lead_to_its_page(services: Running) -> None:
    client = services.client
    client.create_collection("acme", "manuals", SettingsRequest(keep_originals=True))
    pdf = pdf_of(["Cats sleep all day.", "They like fish. Dogs bark at night."])
    manual = Document(pdf, "pets.pdf", mime_type="application/pdf")
    client.ingest("acme", manual, collection="manuals")
    (passage,) = client.search("acme", "what do dogs bark at?", collection="manuals").passages
    names: dict[str, Any] = {"client": client}
    (block,) = PAGE_BLOCKS
    exec(block, names)
    image = names["page_of"](citation(passage))
    assert image.png.startswith(b"\x89PNG")
    assert [box.span for box in image.boxes] == [0]


@pytest.mark.parametrize("block", [block for block in BLOCKS if block not in PAGE_BLOCKS])
def test_examples_of_the_guide_find_the_dogs(
    services: Running, capsys: pytest.CaptureFixture[str], block: str
) -> None:
    address = "127.0.0.1:50052"
    assert address in block
    exec(block.replace(address, services.retriever.address), {})
    printed = capsys.readouterr().out
    assert "[Pets, pages 1-2]" in printed
    assert "Dogs bark at night." in printed


def example(name: str) -> ModuleType:
    spec = spec_from_file_location(name, DOCS / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_chain_quotes_passages_under_their_headings(client: Client) -> None:
    module = example("langchain_chain")
    chain = module.answers(client, TENANT, FakeListChatModel(responses=["They bark."]))
    assert chain.invoke(QUERY) == "They bark."
    prompt = (chain.steps[0] | chain.steps[1]).invoke(QUERY).to_string()
    assert "[Pets, pages 1-2]\n> Cats sleep all day." in prompt
    assert prompt.endswith(QUERY)


def test_the_engine_answers_with_its_sources(client: Client) -> None:
    answer = example("llama_index_engine").engine(client, TENANT, MockLLM()).query(QUERY)
    assert "\n> Dogs bark at night." in str(answer)
    assert "[Pets, pages 1-2]" in {node.metadata["heading"] for node in answer.source_nodes}


@component
class Echo:
    """A chat generator that replies with the text of the last message."""

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage]) -> dict[str, list[ChatMessage]]:
        return {"replies": [ChatMessage.from_assistant(messages[-1].text)]}


def test_the_pipeline_answers_with_its_sources(services: Running) -> None:
    module = example("haystack_pipeline")
    pipeline = module.pipeline(services.retriever.address, TENANT, Echo())
    text, sources = module.ask(pipeline, QUERY)
    pipeline.close()
    assert "[Pets, pages 1-2]" in sources
    assert "[Pets, pages 1-2]\n> Cats sleep all day." in text
    assert "\n> Dogs bark at night." in text
    assert text.endswith(QUERY)
