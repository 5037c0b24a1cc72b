"""Which invariants of a store does `hrag check` verify? Each module verifies one kind."""
