"""What all commands share: how results are printed, how a program ends, help and completion.

Every folder of `cli/` imports it. Start with `output.py` and `exit_codes.py`.
"""
