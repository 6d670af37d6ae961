"""The least that must be compared before anything is called FAITHFUL: the example, other ordinary values, two sizes of each open dim."""

from collections.abc import Sequence

from onnxproof.results import Case, Finding

_BEND, _LEAST_S = 0.2, 2.0
"""How far the budget bends for the floor: by this share of it, by the time of one case, or by this many seconds."""
_MARGIN = 1.5
"""Times the dearest case so far: what each case that is still missing is expected to take."""


class Floor:
    """What is still missing, case by case."""

    def __init__(self, dims: Sequence[str], *, chosen: bool = False) -> None:
        self._example, self._ordinary = chosen, chosen
        self._sizes: dict[str, set[int]] = {} if chosen else {dim: set() for dim in dims}
        self.skipped = 0
        """Cases that were left out so that the floor could be reached in time."""

    def wants(self, case: Case) -> bool:
        """Whether a case would bring the floor nearer."""
        if case.domain is not None:
            return False
        if case.name == "example":
            return not self._example
        if case.ordinary and not self._ordinary:
            return True
        return any(
            size not in self._sizes[dim] and len(self._sizes[dim]) < 2
            for dim, size in case.sizes.items()
            if dim in self._sizes
        )

    def take(self, case: Case) -> None:
        """Remember a case that was compared."""
        if case.domain is not None:
            return
        self._example |= case.name == "example"
        self._ordinary |= case.ordinary and case.name != "example"
        for dim, size in case.sizes.items():
            if dim in self._sizes:
                self._sizes[dim].add(size)

    @property
    def missing(self) -> tuple[str, ...]:
        """What was not compared yet, in words."""
        values = [
            words
            for done, words in (
                (self._example, "the example"),
                (self._ordinary, "other values than the example's"),
            )
            if not done
        ]
        return (
            *values,
            *(f"a second size of `{dim}`" for dim, seen in self._sizes.items() if len(seen) < 2),
        )

    def skips(self, case: Case, left_s: float, case_s: float) -> bool:
        """Whether a case must give way to those that are missing, since the time left is needed for them."""
        if not self.missing or self.wants(case) or left_s > len(self.missing) * case_s * _MARGIN:
            return False
        self.skipped += 1
        return True

    def beyond(self, over_s: float, budget_s: float, case_s: float) -> bool:
        """Whether not even a missing case may begin, so many seconds after the budget ended: it bends for them, and does not break."""
        return not self.missing or over_s > max(_BEND * budget_s, case_s, _LEAST_S)

    def findings(self, *, complete: bool, budget_s: float) -> list[Finding]:
        """Nothing where the floor was reached; dims whose other sizes the reference itself refuses are said, and take nothing away."""
        if not self.missing:
            return []
        what = f"not enough was compared: {', '.join(self.missing)} {'is' if len(self.missing) == 1 else 'are'} missing"
        if not complete:
            return [
                Finding(
                    code="not-enough-compared",
                    what=what,
                    voids=True,
                    help=f"the budget of {budget_s:g} s ended first: give more time (`--budget`)",
                )
            ]
        if not (self._example and self._ordinary):
            return [
                Finding(
                    code="not-enough-compared",
                    what=what,
                    voids=True,
                    help="the reference refuses other values of the example's kind: give some that it takes (`--data`)",
                )
            ]
        return [
            Finding(
                code="one-size",
                what=f"no case has {', '.join(self.missing)}: the reference refuses other sizes",
            )
        ]
