"""Which invariants of a store does `hrag check` check? One module for each subject."""
