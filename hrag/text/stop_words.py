"""The stop words of each language: words that say little about the subject of a query.

Stop words are removed from queries, never from the index, because a phrase may need them, and a
query may consist only of stop words. The words of a query are first folded (for example, to
lower case), then compared with the stop words, and then stemmed.
"""

_ENGLISH = """
a an and are as at be but by for if in into is it no not of on or such that the their then there
these they this to was will with what which who whom how when where why do does did can could
should would has have had its from than so i you he she we our your my me us his her them about
"""

STOP_WORDS = {"english": frozenset(_ENGLISH.split())}
