"""How does `hrag demo` show what hrag does, without any setup?"""
