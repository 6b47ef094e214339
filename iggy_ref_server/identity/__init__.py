"""Who somebody is and what they may do: passwords, tokens, permissions."""
