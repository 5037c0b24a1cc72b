"""How does a whole store move to another engine?"""
