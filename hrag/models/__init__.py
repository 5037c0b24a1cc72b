"""How are models called: embedders, chat models, rerankers?"""
