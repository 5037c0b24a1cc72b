"""How does a call travel: as one reply, as events and frames, as lines?"""
