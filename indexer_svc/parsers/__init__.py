"""How are files of foreign formats read, so that a hostile one harms nobody?"""
