"""Which calls run now, in which thread, and how much may all of them hold?"""
