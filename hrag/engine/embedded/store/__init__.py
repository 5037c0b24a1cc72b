"""What does a store keep in LMDB, and how is it opened?"""
