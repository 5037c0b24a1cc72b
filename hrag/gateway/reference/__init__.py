"""How do people and client generators learn the requests and responses of the methods?"""
