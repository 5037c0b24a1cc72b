"""Which invariants of a store does `hrag check` prove? One module for each subject."""
