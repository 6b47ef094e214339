"""Authentication and authorisation: passwords, tokens, JWTs, permissions."""
