"""How do JSON documents become messages, and messages JSON?"""
