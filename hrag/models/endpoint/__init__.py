"""How are OpenAI-compatible endpoints called? Shared by embedders and chat models."""
