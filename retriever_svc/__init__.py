"""The retrieval service: receives queries and returns passages."""
