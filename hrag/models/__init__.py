"""How does hrag use models: embedders, chat models and rerankers?"""
