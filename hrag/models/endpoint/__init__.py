"""How are OpenAI-compatible endpoints called?

Embedders, chat models and rerankers share this code.
"""
