"""Who plays which conversation, when conversations share their beginnings.

Two players that sent the same history are interchangeable until their replies differ. The
upstream gives every recorded reply once, so a player may get the reply of another conversation
with the same beginning. It then swaps: from there on it plays that conversation, and the other
player plays what it gave up. Every conversation is still played exactly once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from infra.demo.conversations import Conversation
from infra.demo.draft import Message
from infra.demo.recorded import extend, prefix_digests


class UnknownReplyError(Exception):
    """The reply belongs to no conversation that could continue this history. Holds no text."""


class Casting:
    """Assigns conversations to players; at first player `n` plays conversation `n`."""

    def __init__(self, conversations: Sequence[Conversation]) -> None:
        self._conversations = conversations
        self._digests = [prefix_digests(item.messages) for item in conversations]
        self._conversation_of = list(range(len(conversations)))
        self._player_of = list(range(len(conversations)))
        self._num_settled = [0] * len(conversations)  # messages a player can no longer swap away
        self._by_prefix: defaultdict[bytes, list[int]] = defaultdict(list)
        for index, digests in enumerate(self._digests):
            for digest in digests:
                self._by_prefix[digest].append(index)

    def playing(self, player: int) -> Conversation:
        """The conversation that `player` plays now."""
        return self._conversations[self._conversation_of[player]]

    def ends_alone(self, player: int) -> bool:
        """True where nobody else shares the history before the last call of the player."""
        index = self._conversation_of[player]
        last_turn = self._conversations[index].turns[-1]
        return len(self._by_prefix[self._digests[index][last_turn]]) == 1

    def follow(self, player: int, position: int, reply: Message) -> Conversation:
        """Settle the reply `player` got at `position`; returns what it plays from there on.

        Raises `UnknownReplyError` where no conversation that is still open continues so.
        """
        before = self._digests[self._conversation_of[player]][position]
        wanted = extend(before, reply)
        for candidate in self._by_prefix.get(wanted, ()):
            other = self._player_of[candidate]
            if other == player or self._num_settled[other] <= position:
                self._swap(player, other)
                self._num_settled[player] = position + 1
                return self._conversations[candidate]
        raise UnknownReplyError(
            f"the reply at position {position} is not one that was recorded for this history. "
            "Is something between player and upstream changing messages?"
        )

    def _swap(self, player: int, other: int) -> None:
        mine, theirs = self._conversation_of[player], self._conversation_of[other]
        self._conversation_of[player], self._conversation_of[other] = theirs, mine
        self._player_of[mine], self._player_of[theirs] = other, player
