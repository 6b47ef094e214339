"""Personal access tokens, indexed by hash for logins, and by user and name for their owner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType

from iggy_protocol import record
from iggy_ref_server.metadata.records import TokenRecord

__all__ = ["TokenShelf"]

_NONE: Mapping[str, TokenRecord] = MappingProxyType({})


@record
class TokenShelf:
    """Tokens by hash, and by user and name; every change makes a new index."""

    by_hash: Mapping[str, TokenRecord] = field(default_factory=dict)
    by_user: Mapping[int, Mapping[str, TokenRecord]] = field(default_factory=dict)

    @classmethod
    def holding(cls, tokens: Iterable[TokenRecord]) -> TokenShelf:
        """Index many tokens, whose hashes and names are unique."""
        by_hash: dict[str, TokenRecord] = {}
        by_user: dict[int, dict[str, TokenRecord]] = {}
        for token in tokens:
            by_hash[token.hash] = token
            by_user.setdefault(token.user_id, {})[token.name] = token
        return cls(by_hash, by_user)

    def __len__(self) -> int:
        return len(self.by_hash)

    def __iter__(self) -> Iterator[TokenRecord]:
        return iter(self.by_hash.values())

    def of_user(self, user_id: int) -> Mapping[str, TokenRecord]:
        """Return the tokens of a user by name, in the order in which they were made."""
        return self.by_user.get(user_id, _NONE)

    def add(self, token: TokenRecord) -> TokenShelf:
        """Add a token, unless its hash or its name is in use."""
        own = self.of_user(token.user_id)
        if token.hash in self.by_hash or token.name in own:
            return self
        return TokenShelf(
            {**self.by_hash, token.hash: token},
            {**self.by_user, token.user_id: {**own, token.name: token}},
        )

    def remove(self, user_id: int, name: str) -> TokenShelf:
        """Remove one token; nothing happens if it does not exist."""
        own = dict(self.of_user(user_id))
        token = own.pop(name, None)
        if token is None:
            return self
        by_hash = {digest: kept for digest, kept in self.by_hash.items() if digest != token.hash}
        others = {owner: tokens for owner, tokens in self.by_user.items() if owner != user_id}
        return TokenShelf(by_hash, {**others, user_id: own} if own else others)

    def remove_user(self, user_id: int) -> TokenShelf:
        """Remove all tokens of a user."""
        if user_id not in self.by_user:
            return self
        return TokenShelf(
            {digest: kept for digest, kept in self.by_hash.items() if kept.user_id != user_id},
            {owner: tokens for owner, tokens in self.by_user.items() if owner != user_id},
        )
