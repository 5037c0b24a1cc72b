"""How do agents search?"""
