"""Which invariants of a store does `hrag check` check? Each module checks one subject."""
