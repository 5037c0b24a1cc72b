"""How do people and generators of clients learn what the methods take?"""
