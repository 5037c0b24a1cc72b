"""Which values do all modules share? Documents, searches, filters, errors, ids, limits, trees.

Most of them are frozen data classes.
"""
