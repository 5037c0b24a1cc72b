"""What is a segment, which are there, and how is one built?"""
