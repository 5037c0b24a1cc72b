"""When does the engine seal tails, merge and repair segments, and reclaim disk space?"""
