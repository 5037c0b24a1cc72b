"""How does a writer commit collections and whole documents to PostgreSQL?"""
