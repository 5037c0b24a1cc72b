"""Compares hrag's services with other servers: sixteen callers, equal leaves and equal vectors.

Each server is searched by its native load generator, and its processor time is measured.
README.md in this folder describes the comparison.
"""
