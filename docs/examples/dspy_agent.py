"""An agent that answers from a knowledge base and names its sources, with DSPy.

    pip install . dspy    # in hrag's source folder
    export OPENAI_API_KEY=...
    python docs/examples/dspy_agent.py "What did we decide about retries?" --tenant acme

Start the services first (`hrag serve`) and store documents (`hrag ingest`). Any model that DSPy
supports works.
"""

import argparse
import os

import dspy

from hrag.client import Client
from hrag.client.tools import as_text, knowledge_base


class Answer(dspy.Signature):
    """Answer from the knowledge base alone. If it has no answer, say so."""

    question: str = dspy.InputField()
    text: str = dspy.OutputField()
    sources: list[str] = dspy.OutputField(desc="Headings of the passages used, verbatim.")


def librarian(client: Client, tenant_id: str) -> dspy.Module:
    """Returns an agent that can search this tenant's documents and no others."""
    return dspy.ReAct(Answer, tools=[as_text(knowledge_base(client, tenant_id, token_budget=4000))])


def main() -> None:
    """Answers the question given on the command line."""
    parser = argparse.ArgumentParser(description="Ask a knowledge base.")
    parser.add_argument("question")
    parser.add_argument("--model", default="openai/gpt-5-mini")
    parser.add_argument("--tenant", default="default")
    parser.add_argument("--retriever", default="127.0.0.1:50052")
    arguments = parser.parse_args()
    # Without this, LiteLLM, which DSPy uses to call models, downloads a price list from GitHub.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    dspy.configure(lm=dspy.LM(arguments.model))
    with Client(retriever=arguments.retriever) as client:
        answer = librarian(client, arguments.tenant)(question=arguments.question)
    print(answer.text)
    for source in answer.sources:
        print(f"- {source}")


if __name__ == "__main__":
    main()
