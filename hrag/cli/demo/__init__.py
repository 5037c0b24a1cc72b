"""What does hrag do, shown without any setup?"""
