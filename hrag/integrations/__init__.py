"""Where does hrag fit into frameworks of others?

One module a framework, each with an extra of its own: `langchain`, `llama_index`, `haystack`.
Each has a class `HragRetriever` that hands a query to `hrag.client` and passages, with what a
citation needs, to the framework. Errors are those of `hrag.errors`, unchanged.
"""


def missing_package(error: ImportError, extra: str) -> ImportError:
    """Returns the error to raise where the framework of an extra is not installed."""
    return ImportError(
        f"a package that this module requires is not installed ({error}); "
        f"install it with: pip install 'hrag[{extra}]'"
    )
