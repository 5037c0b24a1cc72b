"""How are collections and their documents listed, shown, changed and deleted?"""
