"""Which code do all engines share?

The steps from the candidates of a search to its passages, and the encoding of stored records.
"""
