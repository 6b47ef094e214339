"""A shard: the rooms on one core, how they are assembled, and the walls between shards."""
