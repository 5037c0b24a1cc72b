"""How are JSON documents converted into protobuf messages, and messages into JSON?"""
