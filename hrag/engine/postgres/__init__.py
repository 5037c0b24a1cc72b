"""How is everything kept in PostgreSQL, by processes on any number of machines?"""
