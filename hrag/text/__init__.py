"""How does text become tokens, sentences and terms, and how is it cited?"""
