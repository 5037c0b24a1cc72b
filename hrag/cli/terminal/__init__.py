"""How do commands write to a terminal, and to programs that read their output?"""
