"""Data the package ships: the vocabulary of `cl100k_base` (MIT, see LICENSE-cl100k_base)."""
