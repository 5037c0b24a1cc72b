"""A query engine that answers from a knowledge base and names its sources, with LlamaIndex.

    pip install '.[llama-index]' llama-index-llms-openai    # in hrag's source folder
    export OPENAI_API_KEY=...
    python docs/examples/llama_index_engine.py "What did we decide about retries?" --tenant acme

Start the services first (`hrag serve`) and store documents (`hrag ingest`). Any model of
LlamaIndex works instead of OpenAI's.
"""

import argparse

from llama_index.core.llms import LLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle

from hrag.client import Client
from hrag.integrations.llama_index import HragRetriever
from hrag.text.plain_text import quoted_lines


class QuotedPassages(BaseNodePostprocessor):
    """Quotes each line of the passages, so that no passage can imitate another one."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], _query: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        for each in nodes:
            each.node.set_content(quoted_lines(each.node.get_content()))
        return nodes


def engine(client: Client, tenant_id: str, llm: LLM) -> RetrieverQueryEngine:
    """Returns a query engine over this tenant's documents and no others."""
    retriever = HragRetriever(client, tenant_id, token_budget=4000)
    return RetrieverQueryEngine.from_args(
        retriever, llm=llm, node_postprocessors=[QuotedPassages()]
    )


def main() -> None:
    """Answers the question given on the command line."""
    from llama_index.llms.openai import OpenAI  # noqa: PLC0415

    parser = argparse.ArgumentParser(description="Ask a knowledge base.")
    parser.add_argument("question")
    parser.add_argument("--model", default="gpt-5-mini")
    parser.add_argument("--tenant", default="default")
    parser.add_argument("--retriever", default="127.0.0.1:50052")
    arguments = parser.parse_args()
    with Client(retriever=arguments.retriever) as client:
        asked = engine(client, arguments.tenant, OpenAI(model=arguments.model))
        answer = asked.query(arguments.question)
    print(answer)
    for source in answer.source_nodes:
        print(f"- {source.metadata['heading']}")


if __name__ == "__main__":
    main()
