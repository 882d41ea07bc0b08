"""NATS JetStream: streams of three replicas (R3), kept in files.

``servers`` starts three and is the peer; ``driver`` is the program that loads them, with the
client that its users have in Python. go.mod pins the server.
"""
