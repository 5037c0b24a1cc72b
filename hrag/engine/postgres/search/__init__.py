"""How does a search find leaves and read one consistent state?"""
