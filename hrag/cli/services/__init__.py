"""How are the services started, and how is their state shown?"""
