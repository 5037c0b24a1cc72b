"""How does hrag serve as a retriever of LangChain, LlamaIndex and Haystack?

There is one module for each framework: `langchain`, `llama_index`, `haystack`. Each module has a
class `HragRetriever` and needs the optional packages of its framework, which the extra
`langchain`, `llama-index` or `haystack` installs. The class passes a query to `hrag.client` and
returns the passages to the framework, with the data that a citation needs. It raises the errors of
`hrag.errors` unchanged.
"""

from hrag.values.installation import install_command


def missing_package(error: ImportError, extra: str) -> ImportError:
    """Returns the error to raise if a framework is not installed.

    `extra` is the name of the extra that installs the framework.
    """
    return ImportError(
        f"a package that this module requires is not installed ({error}); "
        f"install it with: {install_command(extra)}"
    )
