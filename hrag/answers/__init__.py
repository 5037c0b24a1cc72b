"""What are the values of an answer, and how does an answer cite its passages?"""
