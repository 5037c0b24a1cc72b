"""The example of an agent runs unchanged against real services. Only the model is a fake."""

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hrag.types import Document, Page
from tests.support.servers.processes import Running

pytest.importorskip("pydantic_ai", reason="the example needs pydantic-ai-slim")

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
EXAMPLE = EXAMPLES / "pydantic_ai_agent.py"
TOOL = "search_knowledge_base"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = spec_from_file_location("pydantic_ai_agent", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_quotes_the_passages_that_a_model_reads(path: Path) -> None:
    """The tests of the frameworks, which need their packages, examine the prompts themselves."""
    assert any(call in path.read_text("utf-8") for call in ("quoted_lines(", "as_text("))


def _ingest_pets(services: Running, tenant: str) -> None:
    pages = (Page("Cats sleep all day."), Page("Dogs bark at night."))
    services.client.ingest(tenant, Document(pages, "pets", title="Pets"))


class ScriptedModel:
    """A model that searches once, then answers with the result of the tool."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self.parameters: list[str] = []
        self.reply = ""
        self.model = FunctionModel(self._answer)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        returned = [
            part
            for message in messages
            for part in message.parts
            if isinstance(part, ToolReturnPart) and part.tool_name == TOOL
        ]
        if not returned:
            (tool,) = info.function_tools
            self.parameters = list(tool.parameters_json_schema["properties"])
            return ModelResponse([ToolCallPart(TOOL, self.arguments)])
        self.reply = returned[0].model_response_str()
        headings = [line for line in self.reply.splitlines() if line.startswith("[")]
        answer = {"text": self.reply, "sources": headings}
        (output,) = info.output_tools
        return ModelResponse([ToolCallPart(output.name, answer)])


async def test_the_agent_searches_and_cites(
    services: Running, tenant: str, example: ModuleType
) -> None:
    _ingest_pets(services, tenant)
    services.client.ingest(f"{tenant}-other", Document("Secret.", "secret"))
    scripted = ScriptedModel(query="what do dogs do?", limit=3)
    agent = example.librarian(services.client, tenant)
    answer = (await agent.run("What do dogs do?", model=scripted.model)).output
    assert scripted.parameters == ["query", "limit", "earlier_questions"]
    assert "[Pets, pages 1-2]" in scripted.reply, "the model must see the heading"
    assert "\n> Dogs bark at night." in answer.text, "each line of a passage must be quoted"
    assert answer.sources == ["[Pets, pages 1-2]"]


async def test_the_model_gets_errors_of_the_search_and_the_run_continues(
    services: Running, tenant: str, example: ModuleType
) -> None:
    scripted = ScriptedModel(query="  ")
    agent = example.librarian(services.client, tenant)
    answer = (await agent.run("What do dogs do?", model=scripted.model)).output
    assert answer.text == "The search failed: query is blank; a query must say something."
    assert answer.sources == []


def test_the_example_runs_as_a_program(services: Running, tenant: str) -> None:
    """pydantic-ai's model `test` calls every tool and invents an answer."""
    _ingest_pets(services, tenant)
    command = [sys.executable, str(EXAMPLE), "What do dogs do?", "--model", "test"]
    command += ["--tenant", tenant, "--retriever", services.retriever.address]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("a\n- ")
