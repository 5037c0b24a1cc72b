"""How are documents, collections and summaries written to LMDB, and how are writes committed?"""
