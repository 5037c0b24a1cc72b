"""Compares the lexical source with other BM25 engines, with equal leaves, terms and queries.

Every engine runs in a separate process. README.md in the folder above describes the comparison.
"""
