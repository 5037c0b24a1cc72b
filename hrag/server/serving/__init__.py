"""How does a service start to listen, report its health and metrics, and stop?"""
