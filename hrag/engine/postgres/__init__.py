"""How does the engine store and search in PostgreSQL, from processes on any number of machines?"""
