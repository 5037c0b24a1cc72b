"""How does one machine store documents in LMDB, and derive segments and tails from them?"""
