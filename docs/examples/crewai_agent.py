"""An agent that answers from a knowledge base and names its sources, with CrewAI.

    pip install . crewai    # in hrag's source folder
    export OPENAI_API_KEY=...
    python docs/examples/crewai_agent.py "What did we decide about retries?" --tenant acme

Start the services first (`hrag serve`) and store documents (`hrag ingest`). Any model that CrewAI
supports works.
"""

import argparse
import os

from crewai import Agent, Crew, Task
from crewai.tools import tool
from pydantic import BaseModel, Field

from hrag.client import Client
from hrag.client.tools import as_text, knowledge_base


class Answer(BaseModel):
    """The agent's answer and its sources."""

    text: str
    sources: list[str] = Field(description="Headings of the passages used, verbatim.")


def librarian(client: Client, tenant_id: str, model: str) -> Crew:
    """Returns a crew of one agent that can search this tenant's documents and no others."""
    agent = Agent(
        role="Librarian",
        goal="Answer from the knowledge base alone. If it has no answer, say so.",
        backstory="You name the heading of each passage that you use.",
        llm=model,
        tools=[tool(as_text(knowledge_base(client, tenant_id, token_budget=4000)))],
    )
    task = Task(
        description="{question}",
        expected_output="An answer and the headings of the passages used, verbatim.",
        agent=agent,
        output_pydantic=Answer,
    )
    # Without `tracing=False`, CrewAI asks whether to upload the run, passages included.
    return Crew(agents=[agent], tasks=[task], tracing=False)


def main() -> None:
    """Answers the question given on the command line."""
    parser = argparse.ArgumentParser(description="Ask a knowledge base.")
    parser.add_argument("question")
    parser.add_argument("--model", default="openai/gpt-5-mini")
    parser.add_argument("--tenant", default="default")
    parser.add_argument("--retriever", default="127.0.0.1:50052")
    arguments = parser.parse_args()
    # Without this, CrewAI sends usage data to telemetry.crewai.com.
    os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
    with Client(retriever=arguments.retriever) as client:
        crew = librarian(client, arguments.tenant, arguments.model)
        answer = crew.kickoff({"question": arguments.question}).pydantic
    print(answer.text)
    for source in answer.sources:
        print(f"- {source}")


if __name__ == "__main__":
    main()
