"""`logservice logdb` and `logservice audit`: what lies on a disk, read without a running store.

Start with `logdb_commands.py`. Nothing else imports it.
"""
