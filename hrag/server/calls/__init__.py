"""What is checked before the handler of a call runs, and what is recorded when the call ends?"""
