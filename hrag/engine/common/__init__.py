"""What do all engines share: the steps from candidates to passages, and stored values?"""
