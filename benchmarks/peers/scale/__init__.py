"""The peers among more leaves, and with more callers: equal seeded leaves, vectors and queries.

Every peer runs in a process of its own, within limits of time and memory. See README.md in the
folder above.
"""
