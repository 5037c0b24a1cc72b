"""What may a tenant use, and where do its limits come from?"""
