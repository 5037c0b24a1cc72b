"""How does a service take calls: who may call, which calls run now, how is it watched?"""
