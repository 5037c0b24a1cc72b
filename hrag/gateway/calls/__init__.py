"""How does the gateway forward a call and its response: as one reply, as events or as lines?"""
