"""What is stored in PostgreSQL, and how is it reached?"""
