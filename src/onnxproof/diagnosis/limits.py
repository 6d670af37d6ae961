"""The numbers that decide when a trial counts: each stands here once, with what is known about it."""

# --- causes ---
FIXED_NOISE_RATIO = 20
"""A changed graph is right when its error is at most so many times the noise of the witness. Not measured."""
FIXED_LEAST_ERROR = 2e-6
"""A relative error below this is never held against a change: float32 carries seven digits. Not measured."""
FIXED_IMPROVEMENT = 5
"""A changed graph is right only if its error is so many times smaller than before. Not measured."""
LIKELY_IMPROVEMENT = 20
"""A change that leaves more than the noise is still named as likely when the error is so many times smaller. Not measured."""
OTHER_CASES = 2
"""So many other cases that show the fault must agree with a hypothesis. Not measured."""
OTHER_CASES_IMPROVEMENT = 20
"""On those cases the error must be so many times smaller, or within the limit. Not measured."""
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
