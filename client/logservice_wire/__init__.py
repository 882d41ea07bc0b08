"""What client and server share: the contract, the block codec, the table of errors.

Depends on protobuf only, so both sides can import it, and so can a tool that only reads blocks.
Start with `rpcs.py` (every RPC, one row each) and `errors.py` (every failure, one row each);
`block.py` has the bytes of a block, `v1/` what is generated from ``proto/``.
"""
