"""hrag beside other ways to search small chunks and return larger ones; see README.md here.

Every peer runs in a process of its own, with the same documents and the same vectors.
"""
