"""How does an operator maintain a store and its keys?"""
