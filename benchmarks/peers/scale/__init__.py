"""The peers with more leaves and with more callers: equal seeded leaves, vectors and queries.

Every peer runs in a separate process, within limits of time and memory. README.md in the folder
above describes the comparison.
"""
