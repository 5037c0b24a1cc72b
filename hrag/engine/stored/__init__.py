"""What does every engine store of a document, and how are the stored parts named?"""
