"""What happens in the background, and when: indexing, merging, reclaiming?"""
