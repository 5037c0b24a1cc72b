"""What does a search find on the development sets? `make bench-quality DATA=folder`.

Both services run as processes of their own on an empty store; documents go in and questions are
asked through them, with `hrag.evaluation`.
"""
