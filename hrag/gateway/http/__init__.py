"""How does the gateway receive requests and send replies, with limits of time and size?"""
