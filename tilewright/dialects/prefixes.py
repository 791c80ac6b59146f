"""Running combinations of the elements of a row, without a loop: of neighbours first, of the pairs then.

    x            a     b     c     d          split into halves: a c | b d
    pairs          ab          cd             combined, and scanned likewise: before them are - | ab
    before       -     a     ab    abc        before a pair is before its first, which is before its second

So n elements take 2 n combinations in 2 log2(n) steps, and whatever moves elements only splits and joins
(`vector.deinterleave`, `vector.interleave`), which registers that hold neighbours do by name. Source: Blelloch, Prefix
Sums and Their Applications, CMU-CS-90-190.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefixes(ABC, Generic[T]):
    """Scans rows whose values are `T`, from the first element on, or from the last (`backwards`)."""

    backwards = False

    @abstractmethod
    def extent(self, x: T) -> int:
        """Elements of a row."""

    @abstractmethod
    def halves(self, x: T) -> tuple[T, T]:
        """The even elements and the odd ones, as many."""

    @abstractmethod
    def joined(self, even: T, odd: T) -> T:
        """Even and odd elements in turn."""

    @abstractmethod
    def resized(self, x: T, extent: int, offset: int) -> T:
        """Rows that grow to an extent and begin at an offset in it, with anything around; or shrink likewise."""

    @abstractmethod
    def combined(self, before: T, x: T) -> T:
        """Of what comes first and what comes after it."""

    def following(self, before: T, x: T) -> T:
        """The same where nothing, or `start`, may come first."""
        return self.combined(before, x)

    @abstractmethod
    def start(self, x: T) -> T:
        """What is before the only element of a row."""

    def inclusive(self, x: T) -> T:
        """At each place, what the elements up to it combine to."""
        if self.extent(x) == 1:
            return x
        first, second = self._pairs(x)
        both = self.combined(first, second)
        before = self.exclusive(both)
        return self._row(self.following(before, first), self.following(before, both), x)

    def exclusive(self, x: T) -> T:
        """At each place, what those before it combine to."""
        if self.extent(x) == 1:
            return self.start(x)
        first, second = self._pairs(x)
        before = self.exclusive(self.combined(first, second))
        return self._row(before, self.following(before, first), x)

    def _pairs(self, x: T) -> tuple[T, T]:
        """An odd number of elements gets one more behind the last, which comes before nothing."""
        if (extent := self.extent(x)) % 2:
            x = self.resized(x, extent + 1, int(self.backwards))
        even, odd = self.halves(x)
        return (odd, even) if self.backwards else (even, odd)

    def _row(self, first: T, second: T, x: T) -> T:
        """As long as x."""
        row = self.joined(second, first) if self.backwards else self.joined(first, second)
        extent = self.extent(x)
        return self.resized(row, extent, int(self.backwards)) if extent % 2 else row
