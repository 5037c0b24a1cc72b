"""Compares the peers with more leaves and more callers; leaves, vectors and queries are equal.

Every peer runs in a separate process, within limits of time and memory. README.md in the folder
above describes the comparison.
"""
