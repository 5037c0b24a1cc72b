"""What does a search find on the development sets? `make bench-quality DATA=folder`.

Both services run in separate processes on an empty store. The documents are ingested and the
questions are asked through the services, with `hrag.evaluation`.
"""
