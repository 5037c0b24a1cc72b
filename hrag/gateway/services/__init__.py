"""Which methods do the services have, and how are they called?"""
