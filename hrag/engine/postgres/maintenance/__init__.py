"""When does the background work index, merge and reclaim?"""
