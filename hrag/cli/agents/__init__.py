"""How do agents search and read documents over the Model Context Protocol?"""
