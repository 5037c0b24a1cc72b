"""Which options do several commands share, and how do they reach the services?"""
