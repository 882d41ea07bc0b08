"""HAKeeper with 100 stores and 10 000 shards, in virtual time: `scale` measures, `world` is it."""
