"""OpenAI-compatible endpoints: what embedders and chat models have in common."""
