"""Which invariants of a store does a check prove, by what they are about?"""
