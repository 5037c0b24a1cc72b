"""How does the gateway send a call and its response: as one reply, as events or as lines?"""
