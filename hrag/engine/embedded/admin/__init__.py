"""How do operators check, repair, back up, restore, vacuum and reindex a store?"""
