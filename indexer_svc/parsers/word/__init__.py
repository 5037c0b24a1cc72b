"""How does the text of a Word document come from the parts of its package?"""
