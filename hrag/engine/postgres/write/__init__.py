"""How does a writer commit whole documents to PostgreSQL?"""
