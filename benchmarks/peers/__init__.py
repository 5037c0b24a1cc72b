"""hrag, compared with other ways to search small chunks and return larger ones.

Every peer runs in a process of its own, with equal documents and equal vectors. See README.md.
"""
