"""Times without an acknowledgement, as the producer saw them: pure, constant work an acknowledgement."""


class AckGaps:
    def __init__(self) -> None:
        self._newest: dict[int, float] = {}
        """When each partition was acknowledged last."""
        self._longest_s: dict[int, float] = {}

    def acked(self, partition: int, at: float) -> None:
        """A partition is known from its first acknowledgement on."""
        gap_s = at - self._newest.get(partition, at)
        self._newest[partition] = at
        if gap_s > self._longest_s.get(partition, 0.0):
            self._longest_s[partition] = gap_s

    def take_longest_s(self, at: float) -> dict[int, float]:
        """The longest gap of each partition since the last call; one that is open counts from its beginning."""
        longest_s, self._longest_s = self._longest_s, {}
        return {each: max(longest_s.get(each, 0.0), at - newest) for each, newest in self._newest.items()}
