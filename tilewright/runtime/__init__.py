"""Everything that happens between a user's call and the target: arrays, keys, cache, launch."""
