"""How does the engine connect to PostgreSQL, and which tables and values does it store there?"""
