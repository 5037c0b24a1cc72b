"""How good are searches on one's own questions?"""
