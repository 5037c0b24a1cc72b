"""What happens in the background: sealing, merging, repair, reclaiming?"""
