"""How does a service listen, how is it watched, and how does it stop?"""
