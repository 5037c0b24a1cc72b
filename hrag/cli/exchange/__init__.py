"""How do documents and their trees leave a collection for other programs, and come back?"""
