"""Consumer groups: members, partition assignment and rebalancing."""
