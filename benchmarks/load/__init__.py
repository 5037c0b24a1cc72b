"""Load tests of running services: a generator with a fixed arrival rate, bodies for h2load."""
