"""Tasks in groups, each of which is to be one kernel: none may wait for itself, so that some order of them is right.

For every group the Tasks before and after it are known, as bits of a number. Groups can be one if nothing that stands
outside of them is after one and before another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from functools import reduce
from heapq import heapify, heappop, heappush
from operator import or_
from typing import TypeAlias

Group: TypeAlias = frozenset[str]


class Partition:
    """Groups of Tasks, by default one for each. `sources`: for every Task, in order, what it reads, inputs too."""

    def __init__(self, sources: Mapping[str, Set[str]], groups: Iterable[Group] | None = None):
        self.sources = sources
        self.order = {name: i for i, name in enumerate(sources)}
        self.groups = dict.fromkeys(groups or (Group((name,)) for name in sources))
        """In the order in which they were made."""
        self.of = {name: group for group in self.groups for name in group}
        self.own = {g: sum(1 << self.order[n] for n in g) for g in self.groups}
        self.before, self.after = dict(self.own), dict(self.own)
        """What a group waits for and what waits for it, itself among them."""
        needs, line = self.needs(), self.sorted()
        self.is_cyclic = len(line) < len(self.groups)
        for group in line:
            for source in needs[group]:
                self.before[group] |= self.before[source]
        for group in reversed(line):
            for source in needs[group]:
                self.after[source] |= self.after[group]

    def needs(self) -> dict[Group, set[Group]]:
        """For every group those that make what it reads."""
        of = self.of
        return {
            g: {of[s] for n in g for s in self.sources[n] if s in of} - {g} for g in self.groups
        }

    def may_join(self, parts: Iterable[Group]) -> bool:
        """Can groups be one: does no path leave them and come back?"""
        parts = list(parts)
        own, before, after = (
            reduce(or_, (known[p] for p in parts)) for known in (self.own, self.before, self.after)
        )
        return not before & after & ~own

    def join(self, parts: Iterable[Group]) -> Group:
        """Makes groups one, which must be possible."""
        parts = list(parts)
        whole = Group().union(*parts)
        for known in (self.own, self.before, self.after):
            known[whole] = reduce(or_, [known.pop(p) for p in parts])
        for part in parts:
            del self.groups[part]
        self.groups[whole] = None
        self.of |= dict.fromkeys(whole, whole)
        own, before, after = self.own[whole], self.before[whole], self.after[whole]
        for group in self.groups:
            if self.before[group] & own:
                self.before[group] |= before
            if self.after[group] & own:
                self.after[group] |= after
        return whole

    def sorted(self) -> list[Group]:
        """The groups, each after what it reads, otherwise as their first Tasks stand; not those that wait for ever."""
        needs = self.needs()
        users: dict[Group, list[Group]] = {g: [] for g in self.groups}
        for group, sources in needs.items():
            for source in sources:
                users[source].append(group)
        first = {g: min(self.order[n] for n in g) for g in self.groups}
        ready = [(first[g], g) for g, sources in needs.items() if not sources]
        heapify(ready)
        done: list[Group] = []
        while ready:
            done.append(group := heappop(ready)[1])
            for user in users[group]:
                needs[user].remove(group)
                if not needs[user]:
                    heappush(ready, (first[user], user))
        return done
