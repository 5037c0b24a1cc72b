"""What does hrag need of its machine: cores, private files, addresses, certificates?"""
