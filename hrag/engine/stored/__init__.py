"""What does every engine store of a document, and how are its parts named?"""
