"""Data files of the package: the vocabulary of `cl100k_base` (MIT, see LICENSE-cl100k_base)."""
