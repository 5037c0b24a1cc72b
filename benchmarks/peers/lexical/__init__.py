"""The lexical source compared with other engines of BM25: equal leaves, terms and queries.

Every engine runs in a process of its own. See README.md in the folder above.
"""
