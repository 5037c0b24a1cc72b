"""hrag: a retrieval server for hierarchical RAG.

Holds what both services need, the client SDK (`hrag.client`) and the command line
(`hrag.cli`). Imports nothing itself, so that loading one part never loads another.
"""
