"""When does a background thread build indexes, merge them, and delete the rows of deleted data?"""
