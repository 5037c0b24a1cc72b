"""How do commands write to a terminal, and to what reads their output?"""
