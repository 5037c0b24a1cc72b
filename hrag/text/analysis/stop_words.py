"""Words that say little about what a query asks for, by language.

They leave queries, never the index: a phrase may need them, and so does a query of nothing
else. Compared with folded words before stemming.
"""

_ENGLISH = """
a an and are as at be but by for if in into is it no not of on or such that the their then there
these they this to was will with what which who whom how when where why do does did can could
should would has have had its from than so i you he she we our your my me us his her them about
"""

STOP_WORDS = {"english": frozenset(_ENGLISH.split())}
