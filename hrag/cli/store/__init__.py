"""How does an operator look after a store and its keys?"""
