"""How does the engine connect to PostgreSQL, and what does it store there?"""
