"""How do matched leaves become passages? Pure logic, shared by all engines.

The functions receive trees, texts and matched leaves as values and return chunks and passages. They
know nothing of storage, services or protobuf.
"""
