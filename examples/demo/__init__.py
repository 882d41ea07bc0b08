"""What the demos share: what they print (`screen`), how they look at the cluster (`watch`), and how
they end (`ending`).
"""
