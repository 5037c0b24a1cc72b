"""A pipeline that answers from a knowledge base and names its sources, with Haystack.

    pip install '.[haystack]'    # in hrag's source folder
    export OPENAI_API_KEY=...
    python docs/examples/haystack_pipeline.py "What did we decide about retries?" --tenant acme

Start the services first (`hrag serve`) and store documents (`hrag ingest`). Any chat generator
of Haystack works instead of OpenAI's. HAYSTACK_TELEMETRY_ENABLED=false turns off Haystack's
telemetry.
"""

import argparse
from typing import Any

from haystack import Document, Pipeline, component
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage

from hrag.integrations.haystack import HragRetriever
from hrag.text.plain_text import quoted_lines

PROMPT = """Answer from these passages alone, and cite their headings.
{% for passage in passages %}
{{ passage }}
{% endfor %}
{{ question }}"""


@component
class QuotedPassages:
    """Quotes each line of the passages, so that no passage can imitate another one."""

    @component.output_types(passages=list[str])
    def run(self, documents: list[Document]) -> dict[str, list[str]]:
        """Returns each document as its heading and, below it, its quoted lines."""
        blocks = ((each.meta["heading"], quoted_lines(each.content or "")) for each in documents)
        return {"passages": ["\n".join(block) for block in blocks]}


def pipeline(address: str, tenant_id: str, generator: Any) -> Pipeline:
    """Returns a pipeline over this tenant's documents and no others; close it after use."""
    made = Pipeline()
    made.add_component("retriever", HragRetriever(tenant_id, address=address, token_budget=4000))
    template = [ChatMessage.from_user(PROMPT)]
    made.add_component("prompt", ChatPromptBuilder(template, required_variables="*"))
    made.add_component("generator", generator)
    made.add_component("quoted", QuotedPassages())
    made.connect("retriever.documents", "quoted.documents")
    made.connect("quoted.passages", "prompt.passages")
    made.connect("prompt.prompt", "generator.messages")
    return made


def ask(made: Pipeline, question: str) -> tuple[str, list[str]]:
    """Returns the answer to a question, and the headings of the passages in the prompt."""
    asked = {"retriever": {"query": question}, "prompt": {"question": question}}
    found = made.run(asked, include_outputs_from={"retriever"})
    sources = [each.meta["heading"] for each in found["retriever"]["documents"]]
    return found["generator"]["replies"][0].text, sources


def main() -> None:
    """Answers the question given on the command line."""
    parser = argparse.ArgumentParser(description="Ask a knowledge base.")
    parser.add_argument("question")
    parser.add_argument("--model", default="gpt-5-mini")
    parser.add_argument("--tenant", default="default")
    parser.add_argument("--retriever", default="127.0.0.1:50052")
    arguments = parser.parse_args()
    generator = OpenAIChatGenerator(model=arguments.model)
    made = pipeline(arguments.retriever, arguments.tenant, generator)
    text, sources = ask(made, arguments.question)
    made.close()
    print(text)
    for source in sources:
        print(f"- {source}")


if __name__ == "__main__":
    main()
