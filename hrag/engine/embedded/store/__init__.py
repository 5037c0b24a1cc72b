"""Which data does a store have in LMDB, and how is the store opened?"""
