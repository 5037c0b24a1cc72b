"""How are passages made of the leaves that matched? Pure logic, shared by all engines.

Values in, values out: trees, texts and matched leaves become chunks and passages. Knows
nothing of storage, services or protobuf.
"""
