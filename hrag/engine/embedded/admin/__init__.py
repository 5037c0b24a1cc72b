"""How do operators check, copy, vacuum and reindex a store?"""
