"""hrag, compared with other ways to search small chunks and return larger ones.

Every peer runs in a separate process, with equal documents and equal vectors. README.md in this
folder describes the comparison.
"""
