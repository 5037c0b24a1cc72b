"""What is stored in LMDB, and how is it opened?"""
