"""What happens in the background, and when: sealing, merging, repair, reclaiming?"""
