"""Which addresses, certificates and files does a process depend on?"""
