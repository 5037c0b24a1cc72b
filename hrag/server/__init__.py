"""How does a process serve calls over gRPC, from its first connection to its stop?"""
