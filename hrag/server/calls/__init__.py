"""What happens to each call before its handler runs, and when it ends?"""
