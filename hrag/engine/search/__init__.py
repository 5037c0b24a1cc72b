"""What of a search is the same in every engine: from candidates to passages?"""
