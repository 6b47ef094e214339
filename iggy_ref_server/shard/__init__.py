"""A shard: its components, the calls between shards, and the routing of requests."""
