"""Which indexes do the leaves of a collection have, and how are they built?"""
