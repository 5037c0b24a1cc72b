"""A chain that answers from a knowledge base and names its sources, with LangChain.

    pip install '.[langchain]' langchain-openai    # in hrag's source folder
    export OPENAI_API_KEY=...
    python docs/examples/langchain_chain.py "What did we decide about retries?" --tenant acme

Start the services first (`hrag serve`) and store documents (`hrag ingest`). Any chat model of
LangChain works instead of OpenAI's.
"""

import argparse

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnablePassthrough

from hrag.client import Client
from hrag.integrations.langchain import HragRetriever
from hrag.text.plain_text import quoted_lines

PROMPT = ChatPromptTemplate.from_template(
    "Answer from these passages alone, and cite their headings.\n\n{passages}\n\n{question}"
)


def passages(documents: list[Document]) -> str:
    """Returns the passages for a prompt, quoted so that no passage can imitate another one."""
    blocks = ((each.metadata["heading"], quoted_lines(each.page_content)) for each in documents)
    return "\n\n".join("\n".join(block) for block in blocks)


def answers(client: Client, tenant_id: str, model: BaseChatModel) -> Runnable[str, str]:
    """Returns a chain from a question to its answer, from this tenant's documents."""
    retriever = HragRetriever(client=client, tenant_id=tenant_id, token_budget=4000)
    asked = {"passages": retriever | passages, "question": RunnablePassthrough()}
    return asked | PROMPT | model | StrOutputParser()


def main() -> None:
    """Answers the question given on the command line."""
    from langchain_openai import ChatOpenAI  # noqa: PLC0415

    parser = argparse.ArgumentParser(description="Ask a knowledge base.")
    parser.add_argument("question")
    parser.add_argument("--model", default="gpt-5-mini")
    parser.add_argument("--tenant", default="default")
    parser.add_argument("--retriever", default="127.0.0.1:50052")
    arguments = parser.parse_args()
    with Client(retriever=arguments.retriever) as client:
        chain = answers(client, arguments.tenant, ChatOpenAI(model=arguments.model))
        for piece in chain.stream(arguments.question):
            print(piece, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
