"""The least that must be compared before anything is called FAITHFUL: the example, other ordinary values, two sizes of each open dim."""

from collections.abc import Sequence

from onnxproof.results import Case, Finding

_EXTENSION = 0.2
_LEAST_EXTENSION_S = 2.0
"""How far the budget is extended for the floor: by this share of it, by the time of one case, or by this many seconds (not measured)."""
_MARGIN = 1.5
"""Times the slowest case so far: what each case that is still missing is expected to take (not measured)."""


class Floor:
    """What is still missing, case by case."""

    def __init__(self, dims: Sequence[str], *, chosen: bool = False) -> None:
        self._example = chosen
        self._ordinary = chosen
        self._sizes: dict[str, set[int]] = {}
        if not chosen:
            self._sizes = {dim: set() for dim in dims}
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
        missing = []
        if not self._example:
            missing.append("the example")
        if not self._ordinary:
            missing.append("other values than the example's")
        for dim, seen in self._sizes.items():
            if len(seen) < 2:
                missing.append(f"a second size of `{dim}`")
        return tuple(missing)

    def skips(
        self,
        case: Case,
        left_s: float,
        case_s: float,
    ) -> bool:
        """Whether a case must give way to those that are missing, since the time left is needed for them."""
        if not self.missing or self.wants(case) or left_s > len(self.missing) * case_s * _MARGIN:
            return False
        self.skipped += 1
        return True

    def beyond(
        self,
        over_s: float,
        budget_s: float,
        case_s: float,
    ) -> bool:
        """Whether not even a missing case may begin, so many seconds after the budget ended: it is extended for them, but not without limit."""
        extension_s = max(_EXTENSION * budget_s, case_s, _LEAST_EXTENSION_S)
        return not self.missing or over_s > extension_s

    def findings(self, *, complete: bool, budget_s: float) -> list[Finding]:
        """Nothing where the floor was reached; dims whose other sizes the reference itself refuses are said, and take nothing away."""
        if not self.missing:
            return []
        missing = ", ".join(self.missing)
        if complete and self._example and self._ordinary:
            return [
                Finding(
                    code="one-size",
                    what=f"no case has {missing}: the reference refuses other sizes",
                )
            ]
        verb = "is" if len(self.missing) == 1 else "are"
        action = f"the budget of {budget_s:g} s ended first: give more time (`--budget`)"
        if complete:
            action = "the reference refuses other values of the example's kind: give some that it takes (`--data`)"
        return [
            Finding(
                code="not-enough-compared",
                what=f"not enough was compared: {missing} {verb} missing",
                voids=True,
                help=action,
            )
        ]
