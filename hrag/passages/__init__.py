"""How are passages made of the leaves that matched? Pure, and the same for every engine."""
