"""hrag: a retrieval server for hierarchical RAG.

The package contains what both services need, the client SDK (`hrag.client`) and the command line
(`hrag.cli`). This module imports nothing, so that importing `hrag.client`, for example, does not
import `hrag.cli`.
"""
