"""Which methods do the services have, and how does the gateway call them?"""
