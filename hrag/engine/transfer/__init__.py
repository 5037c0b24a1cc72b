"""How is a whole store copied into a store of another engine?"""
