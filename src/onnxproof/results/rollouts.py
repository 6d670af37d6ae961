"""What rollouts gave: models that feed themselves, run for many calls in their own loops."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStep:
    """One call of a rollout: the worst of its answers."""

    length: int
    """Tokens or frames consumed up to and with this call."""
    noise_ratio: float
    error: float = 0.0
    """The rms error over the size of the answer."""
    kl: float | None = None
    """Kullback-Leibler divergence of the next token from the truth's, in nats."""
    agreement: float | None = None
    """Share of places at which the best token is the reference's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One schedule on one backend: reference, truth and candidate each in its own loop, fed with the same."""

    schedule: str
    """Rows, calls and padding by name; `--case NAME` runs it again."""
    backend: str
    steps: int
    """Calls that were compared."""
    first_bad_step: int | None = None
    """The first call that differs beyond noise; 0 is the first one."""
    first_bad_length: int | None = None
    """Tokens or frames consumed up to and with that call."""
    what: str = ""
    """`step` where the call is wrong from the reference's own states, too; `cache` where it is right from them; `position` where other positions explain it."""
    kl: float | None = None
    """Mean divergence of the candidate's next token from the truth's, in nats; of models with logits."""
    kl_noise: float | None = None
    """The same for the reference itself."""
    agreement: float | None = None
    excused: float | None = None
    """Share of places at which another token is best within noise: ties."""
    first_token_apart: int | None = None
    """The first generated token that a free-running candidate would choose otherwise."""
    apart_by_tie: bool | None = None
    """Whether noise decides between the two tokens there."""
    tokens: tuple[tuple[int, int], ...] = ()
    """What reference and candidate would choose, of the first row, up to where they part."""
    smallest: str = ""
    """The smallest schedule that still shows the fault."""
    along: tuple[RolloutStep, ...] = ()
