"""What does the engine do in the background, and when: seal, merge, repair and reclaim?"""
