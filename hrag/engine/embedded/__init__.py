"""How does one machine store documents in LMDB, and how does it build segments from them?"""
