"""An agent that answers from a knowledge base and names its sources, with pydantic-ai.

    pip install 'pydantic-ai-slim[openai]'
    export OPENAI_API_KEY=...
    python docs/examples/pydantic_ai_agent.py "What did we decide about retries?" --tenant acme

Start the services first (`hrag serve`) and store documents (`hrag ingest`). Any model that
pydantic-ai supports works; `--model test` needs no key and invents its answers.
"""

import argparse

from pydantic import BaseModel, Field
from pydantic_ai import Agent

from hrag.client import Client
from hrag.client.tools import as_text, knowledge_base


class Answer(BaseModel):
    """The agent's answer and its sources."""

    text: str
    sources: list[str] = Field(description="Headings of the passages used, verbatim.")


def librarian(client: Client, tenant_id: str) -> Agent[object, Answer]:
    """Returns an agent that can search this tenant's documents and no others."""
    return Agent(
        output_type=Answer,
        instructions="Answer from the knowledge base alone. If it has no answer, say so.",
        tools=[as_text(knowledge_base(client, tenant_id, token_budget=4000))],
    )


def main() -> None:
    """Answers the question given on the command line."""
    parser = argparse.ArgumentParser(description="Ask a knowledge base.")
    parser.add_argument("question")
    parser.add_argument("--model", default="openai:gpt-5-mini")
    parser.add_argument("--tenant", default="default")
    parser.add_argument("--retriever", default="127.0.0.1:50052")
    arguments = parser.parse_args()
    with Client(retriever=arguments.retriever) as client:
        agent = librarian(client, arguments.tenant)
        answer = agent.run_sync(arguments.question, model=arguments.model).output
    print(answer.text)
    for source in answer.sources:
        print(f"- {source}")


if __name__ == "__main__":
    main()
