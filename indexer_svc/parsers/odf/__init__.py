"""How does the text of an OpenDocument file come from the parts of its package?"""
