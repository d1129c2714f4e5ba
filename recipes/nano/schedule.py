"""A learning rate that knows the clock, so that a run of given minutes always ends finished."""

WARM_UP_STEPS = 200
WARM_UP_TIME = 0.05
"""Of the time, what warm-up takes at most, for short runs."""

HOLD = 0.25
"""Of the time, how much passes at the peak before the rate falls."""

END = 0.01
"""The last learning rate, of the peak."""


def learning_rate(peak: float, step: int, progress: float) -> float:
    """The rate of a step: warm-up, a plateau, then straight down to nearly 0.

    Args:
        peak: the highest.
        step: from 0.
        progress: the part of the run's time that has passed, 0 to 1.
    """
    warm = min(1.0, max((step + 1) / WARM_UP_STEPS, progress / WARM_UP_TIME))
    fall = min(1.0, max(0.0, (progress - HOLD) / (1 - HOLD)))
    return peak * warm * (1 - (1 - END) * fall)
