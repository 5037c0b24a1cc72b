"""How is everything kept on one machine: LMDB the truth, segments and tails derived from it?"""
