"""Which files are ingested, how are they read, and how are they sent?"""
