"""How does hrag send requests to OpenAI-compatible endpoints?

Embedders, chat models and rerankers share this code.
"""
