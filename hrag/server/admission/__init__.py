"""Which calls run now, in which thread, and how much memory may their messages use?"""
