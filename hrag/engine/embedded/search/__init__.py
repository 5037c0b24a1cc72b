"""How does a search find leaves, and how does it read one consistent state of a collection?"""
