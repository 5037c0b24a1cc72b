"""Which leaves answer a query best? One module for each kind of index."""
