"""`logservice logdb` and `logservice audit` read what is on a disk, without a running store.

Start with `logdb_commands.py`. Nothing else imports it.
"""
