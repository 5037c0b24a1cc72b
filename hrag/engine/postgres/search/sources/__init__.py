"""Which leaves does each kind of index find for a query?"""
