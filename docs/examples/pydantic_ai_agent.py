"""An agent that answers from a knowledge base and names its sources, with pydantic-ai.

    pip install 'pydantic-ai-slim[openai]'
    export OPENAI_API_KEY=...
    python docs/examples/pydantic_ai_agent.py "What did we decide about retries?" --tenant acme

Both services run (`hrag serve`), and the tenant has documents (`hrag ingest`). Every model
that pydantic-ai knows will do; `--model test` is one that needs no key and knows nothing.
"""

import argparse

from pydantic import BaseModel, Field
from pydantic_ai import Agent

from hrag.client import Client
from hrag.client.tools import knowledge_base


class Answer(BaseModel):
    """What the agent says, and from where it knows."""

    text: str
    sources: list[str] = Field(description="Headings of the passages used, letter by letter.")


def librarian(client: Client, tenant_id: str) -> Agent[object, Answer]:
    """An agent that can search this tenant's documents, and no others."""
    return Agent(
        output_type=Answer,
        instructions="Answer from the knowledge base alone. Where it does not say, say so.",
        tools=[knowledge_base(client, tenant_id, token_budget=4000)],
    )


def main() -> None:
    """Asks the question that the command line holds."""
    parser = argparse.ArgumentParser(description="Ask a knowledge base.")
    parser.add_argument("question")
    parser.add_argument("--model", default="openai:gpt-5-mini")
    parser.add_argument("--tenant", default="default")
    parser.add_argument("--retriever", default="127.0.0.1:50052")
    asked = parser.parse_args()
    with Client(retriever=asked.retriever) as client:
        agent = librarian(client, asked.tenant)
        answer = agent.run_sync(asked.question, model=asked.model).output
    print(answer.text)
    for source in answer.sources:
        print(f"- {source}")


if __name__ == "__main__":
    main()
