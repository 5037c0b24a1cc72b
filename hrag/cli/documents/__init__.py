"""How is what a collection holds listed, shown, changed and deleted?"""
