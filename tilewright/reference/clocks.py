"""Who knows of whose accesses: a vector clock for every party (`shadow.py` says what a party is).

A party's own clock counts its releases. What it knows of another is the last release of the other that came before,
by a barrier, an arrival that it waited for, or an atomic. Parties of a *team* (a workgroup, or a cluster of them)
meet often, so that what they know of each other is a matrix; what they know of other teams comes by atomics alone, and
is kept by team, where there is anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.reference.values import Array, Index

Known = dict[int, Array]
"""By team: the clocks of its parties up to which their accesses are known."""


class Clocks:
    """The clocks of all parties of a launch; `team` parties with neighbouring numbers are a team."""

    def __init__(self, team: int = 1):
        self.team = team
        self._near: dict[int, Array] = {}
        """By team: (party, party) what the first knows of the second; its own clock on the diagonal."""
        self._far: dict[int, Known] = {}
        """By party: what it knows of other teams."""
        self._signals: dict[Any, Known] = {}
        self._fenced: Known = {}

    def by_team(self, parties: Index) -> Iterator[tuple[int, Any]]:
        """The teams of parties, each with the positions of its own."""
        teams = parties // self.team
        if parties.size and (teams == teams.flat[0]).all():
            yield int(teams.flat[0]), slice(None)
            return
        for team in np.unique(teams).tolist():
            yield team, np.flatnonzero(teams == team)

    def _matrix(self, team: int) -> Array:
        found = self._near.get(team)
        if found is None:
            found = self._near[team] = np.eye(self.team, dtype=np.int32)
        return found

    def forget(self, first: int, last: int) -> None:
        """Teams `first` to `last` (exclusive) have ended: they will ask nothing more."""
        for team in [t for t in self._near if first <= t < last]:
            del self._near[team]

    # Parties of one team, as arrays of numbers.
    def own(self, parties: Index) -> Array:
        """Their own clocks."""
        local = parties % self.team
        return self._matrix(int(parties.flat[0]) // self.team)[local, local]

    def known(self, parties: Index, others: Index, clocks: Index) -> Array:
        """Which accesses by `others`, made at their clocks, came before what `parties` do now, element by element."""
        team = int(parties.flat[0]) // self.team
        local, their = parties % self.team, others % self.team
        near = others // self.team == team
        result = near & (clocks <= self._matrix(team)[local, their])
        if self._far and not near.all():
            for party in np.unique(parties[~near]).tolist():
                for other, row in self._far.get(party, {}).items():
                    here = (parties == party) & (others // self.team == other)
                    result[here] = clocks[here] <= row[their[here]]
        return result

    # Order.
    def publish(self, parties: Index, token: Any) -> None:
        """Whoever acquires the token later knows what the parties did until now."""
        signal = self._signals.setdefault(token, {})
        for team, mine in self.by_team(parties):
            local, matrix = parties[mine] % self.team, self._matrix(team)
            _join(signal, {team: matrix[local].max(axis=0)})
            for party in parties[mine].tolist() if self._far else ():
                _join(signal, self._far.get(party, {}))
            matrix[local, local] += 1

    def acquire(self, parties: Index, token: Any) -> None:
        """The parties know what was published under the token."""
        signal = self._signals.get(token)
        if not signal:
            return
        for team, mine in self.by_team(parties):
            local, matrix = parties[mine] % self.team, self._matrix(team)
            if (row := signal.get(team)) is not None:
                matrix[local] = np.maximum(matrix[local], row)
            away = {other: row for other, row in signal.items() if other != team}
            for party in parties[mine].tolist() if away else ():
                _join(self._far.setdefault(party, {}), away)

    def synchronise(self, parties: Index) -> None:
        """A barrier: everybody knows what everybody did."""
        if parties.size > 1:
            self._signals.pop("barrier", None)
            self.publish(parties, "barrier")
            self.acquire(parties, "barrier")

    def learn(self, parties: Index, of: Index, clocks: Index) -> None:
        """The parties know what others of their team did up to clocks, pair by pair."""
        for team, mine in self.by_team(parties):
            local, their = parties[mine] % self.team, of[mine] % self.team
            matrix = self._matrix(team)
            matrix[local, their] = np.maximum(matrix[local, their], clocks[mine])

    def follow(self, parties: Index, others: Index) -> None:
        """The parties know what others of their team do, pair by pair."""
        for team, mine in self.by_team(parties):
            local, their = parties[mine] % self.team, others[mine] % self.team
            matrix = self._matrix(team)
            matrix[local] = np.maximum(matrix[local], matrix[their])

    def tick(self, parties: Index) -> None:
        """What the parties do from now on is not what they did before."""
        for team, mine in self.by_team(parties):
            local = parties[mine] % self.team
            self._matrix(team)[local, local] += 1

    def begin(self, party: int, like: int) -> None:
        """A party goes on with what another of its team knows, and nothing else."""
        matrix = self._matrix(party // self.team)
        mine, other = party % self.team, like % self.team
        clock = matrix[mine, mine]
        matrix[mine] = matrix[other]
        matrix[mine, mine] = clock

    # What threads wrote, as those see it who do not read as threads do (the copy engine, products).
    def fence(self, parties: Index) -> None:
        """What the parties wrote is seen by asynchronous work, where that knows of it."""
        for team, mine in self.by_team(parties):
            local, matrix = parties[mine] % self.team, self._matrix(team)
            self._fenced.setdefault(team, np.zeros(self.team, np.int32))[local] = matrix[
                local, local
            ]
            matrix[local, local] += 1

    def fenced(self, others: Index, clocks: Index) -> Array:
        """Which accesses came before a fence of the party that made them."""
        result = np.zeros(others.shape, bool)
        for team, mine in self.by_team(others):
            if (until := self._fenced.get(team)) is not None:
                result[mine] = clocks[mine] <= until[others[mine] % self.team]
        return result


def _join(into: Known, other: Known) -> None:
    for team, row in other.items():
        mine = into.get(team)
        into[team] = row if mine is None else np.maximum(mine, row)
