"""The seed of random operations outside of graphs: of those that run at once, and of functions."""

# Seeds of operations are taken modulo it.
LARGEST_SEED = 2**31 - 1


class EagerSeed:
    """The seed of operations that run at once, and where those without one get theirs from."""

    seed: int | None = None
    drawn = 0

    @classmethod
    def next(cls) -> int:
        """A number for an operation without a seed: splitmix64 of how many there were."""
        cls.drawn += 1
        x = ((cls.seed or 0) + cls.drawn * 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return (x ^ x >> 31) % LARGEST_SEED
