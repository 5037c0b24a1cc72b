"""How do requests come in and replies go out, within bounds of time and size?"""
