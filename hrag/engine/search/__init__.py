"""Which steps from candidates to passages does every engine share?"""
