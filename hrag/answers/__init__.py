"""What is an answer, and how does it cite its passages?"""
