"""The thresholds of diagnosis, each once: first those of locating, then those of the causes.

All errors are relative: the rms of a difference over the rms of the truth. "Not measured" says that a number was chosen by
judgement and kept because the planted faults of the tests are named correctly with it.
"""

# Locating.

NOISE_FACTOR = 20.0
"""An answer is wrong from this many times the noise of its case. Not measured; a verdict counts 12 times as beyond noise, and a
location needs a fault that is plainly larger."""

ERROR_FLOOR = 1e-6
"""No answer is wrong below this: float32 rounds at 1.2e-7. Not measured."""

FLOAT64_FACTOR = 4.0
"""In float64 the file is right only this many times below the error limit, which allows for rounding in float32. Not measured."""

FLOAT64_RESOLUTION = 3e-7
"""A value in float64 is one of the module's up to this: the file's constants are rounded to float32. A right value was found within
1e-7 of the module's."""

RUNTIME_RESOLUTION = 1e-5
"""The same for values that a runtime computed in float32, which rounds at every node. Not measured."""

TOLERANCE_FACTOR = 1000.0
"""A value is right within the error of the answers over this, so that a large fault excuses small differences. Not measured."""

LARGEST_TOLERANCE = 1e-5
"""That tolerance never exceeds this. Not measured."""

FIX_FACTOR = 20.0
"""A true value fixes the answers when their error becomes this many times smaller. Not measured."""

REMAINING_FACTOR = 50.0
"""Another fault is looked for until the error is this many times smaller than at first. Not measured."""

REMAINING_TOLERANCES = 10.0
"""And while the error is more than this many times the tolerance. Not measured."""

FEWER_SUSPECTS = 0.9
"""With several faults in a row, a true value is accepted when it leaves less than this share of the suspects. Not measured."""

NEAR = 1e-2
"""A value that is no further from one of the module's values is meant to be that one, and is wrong. Not measured."""

INPUT_FACTOR = 8.0
"""In a runtime a node is guilty when its output is this many times as wrong as its inputs, or as its dtype explains. Not measured."""

DTYPE_STEPS = {"float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-15}
"""The relative error that one rounding to a dtype explains: its spacing at 1."""

FLOAT32_STEP = 1e-7
"""The same for float32 and for what is not listed."""

PROFILE_LIMIT = 1e-5
"""A right node enters the profile up to this gap; beyond it, its nearest value of the module is another one. Not measured."""

SMALLEST_NOISE = 1e-12
"""Ratios to the noise are taken against no less than this, so that nothing is divided by 0."""


def error_limit(noise: float) -> float:
    """The relative error from which on an answer is wrong, for a case of this noise."""
    return max(NOISE_FACTOR * noise, ERROR_FLOOR)


def noise_ratio(gap: float, noise: float) -> float:
    """A gap in units of the noise."""
    return gap / max(noise, SMALLEST_NOISE)


def fixes(error: float, before: float) -> bool:
    """Whether an error is so much smaller than before that the fault is gone."""
    return error < before / FIX_FACTOR


def float64_limit(limit: float) -> float:
    """The relative error up to which the file is right in float64, from the limit for its answers."""
    return max(limit / FLOAT64_FACTOR, ERROR_FLOOR)


def value_tolerance(error: float, resolution: float) -> float:
    """Within which a value is one of the module's, from the error of the answers and the resolution of the values."""
    largest = max(resolution, LARGEST_TOLERANCE)
    return min(max(error / TOLERANCE_FACTOR, resolution), largest)


# Causes.


def answer_limit(noise: float) -> float:
    """The relative error up to which an answer is right, for a case of this noise."""
    return max(FIXED_NOISE_RATIO * noise, FIXED_LEAST_ERROR)


FIXED_NOISE_RATIO = 20
"""A changed graph is right when its error is at most so many times the noise of the witness. Not measured."""

FIXED_LEAST_ERROR = 2e-6
"""A relative error below this is never held against a change: float32 carries seven digits. Not measured."""

FIXED_IMPROVEMENT = 5
"""A changed graph is right only if its error is so many times smaller than before. Not measured."""

LIKELY_IMPROVEMENT = 20
"""A change that leaves more than the noise is still named as likely when the error is so many times smaller. Not measured."""

OTHER_CASES = 2
"""So many other cases that show the fault must agree with a cause before it is proven: the rule of docs/locate.md."""

PASSING_CASES = 2
"""So many cases that don't show the fault must stay as they are with it: the rule of docs/locate.md."""

OTHER_CASES_WHERE_NONE_PASSES = 3
"""Other failing cases that are asked for where every case shows the fault: one more than elsewhere. Not measured."""

OTHER_CASES_IMPROVEMENT = 20
"""On other failing cases the error must be so many times smaller, or within the limit. Not measured."""

MOST_CASES_OF_A_KIND = 4
"""Failing and passing cases that a cause is judged on; each costs three forward passes once, and one for each cause. Not measured."""

MOST_MADE_CASES = 14
"""Cases that are made where the run has too few: seven variations of the witness, and seven draws. Not measured."""

LEAST_NOISE = 1e-7
"""The noise of a case is no less than this: float32 rounds at 1.2e-7."""

MOST_TRIALS = 600
"""Trials for one cause. A trial costs a forward pass: 600 of 3 ms are two seconds. The usual norms of images make 240
pairs, each with the channels in either order."""

DEADLINE_SHARE = 1 / 3
"""One cause may use this share of the time that is left, so that a slow model leaves some for the others. Not measured."""

SAME_VALUES = 1e-4
"""Relative distance up to which two arrays hold the same values. Not measured."""

SAME_KERNEL = 1e-5
"""Relative distance up to which one operator of a runtime computes what the standard says. Not measured."""

TRAIN_MODE_LEAST_ERROR = 1e-4
"""A module in training mode computes in float32, not in float64 as the truth does: an error below this is its own
rounding. Not measured."""

SUSPECTS_COMPARED = 2
"""Located nodes whose counterpart in the module, or whose constants, are compared. Not measured."""

SUSPECTS_EDITED = 3
"""Located nodes of which attributes, operands or weights are changed. Not measured."""

SUSPECTS_REPLACED = 4
"""Located nodes that are replaced by another operator. Not measured."""

SUSPECTS_MENDED_TOGETHER = 6
"""Located nodes that are mended one after the other, each on top of those before. Not measured."""

TRIAL_SHARE = 1 / 2
"""The share of the time that is left after which a hypothesis is ended, so that one that hangs leaves some for the others. It is more
than `DEADLINE_SHARE`, by which a hypothesis ends its own search. Not measured."""

TRIAL_LEAST_S = 20.0
"""Seconds that a hypothesis has in any case: verifying a mended file may take 12. Not measured."""

TRIAL_LEAST_PASSES = 200
"""Forward passes of the reference that it has in any case, on a slow machine or a large model: a flipped weight of BERT-base took 120 of
them to prove and to verify its fix."""

TRIAL_MOST_S = 600.0
"""Seconds that it has at most, where there is no deadline. Not measured."""

EXCHANGES_TRIED = 8
"""Nodes, the nearest first, with which a located one may have exchanged its weights, beside those that hold its module's own weights.
All of them would be tried a session each: at 32 blocks 23.5 s, and nothing was proven. Not measured at other numbers."""
