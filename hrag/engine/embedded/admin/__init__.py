"""How is a store checked, copied and shrunk?"""
