"""How is a document committed?"""
