"""What is a segment, which ones does a collection have, and how is one built?"""
