"""Load tests of running services: a generator with a fixed arrival rate, and bodies for h2load."""
