"""How does one machine store everything in LMDB, and derive segments and tails from it?"""
