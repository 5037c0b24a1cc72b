"""How are passages and answers found and shown?"""
