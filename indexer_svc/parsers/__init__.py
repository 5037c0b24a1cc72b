"""How are files of foreign formats parsed, so that a hostile file cannot do harm?"""
