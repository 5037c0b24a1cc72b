"""What do all engines share: the steps from candidates to passages, and the stored records?"""
