"""The embedded engine: LMDB holds the truth, hnswlib and dense arrays are derived from it."""
