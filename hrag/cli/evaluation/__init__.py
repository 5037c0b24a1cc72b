"""How does `hrag eval` measure the quality of searches with a user's questions?"""
