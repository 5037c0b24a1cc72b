"""How do operators check and migrate a store?"""
