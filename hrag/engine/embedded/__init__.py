"""The embedded engine: LMDB holds the truth, and segments and tails are derived from it.

Its rooms, from the lowest: `store`, `segments`, `write` and `search`, `maintenance`,
`admin`; `engine` connects them.
"""
