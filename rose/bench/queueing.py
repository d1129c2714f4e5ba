"""How long a request waits for a server: the M/D/c queue in closed form.

Arrivals are random (Poisson), every request takes the same time, the first free server takes the
first that waits. The approximations are Sakasegawa's for the chance to wait (Ann. Inst. Statist.
Math. 29, 1977) and an exponential tail at twice the rate of M/M/c, as constant service times halve
the wait. Tests hold both against a simulation.
"""

import math


def delay_probability(servers: int, utilisation: float) -> float:
    """The chance that all servers are busy when a request arrives; exact for one server.

    Args:
        servers: at least 1.
        utilisation: busy share of each, in [0, 1).
    """
    return float(utilisation ** (math.sqrt(2 * (servers + 1)) - 1))


def wait_quantile(servers: int, service_s: float, utilisation: float, quantile: float) -> float:
    """Seconds that `quantile` of the requests wait at most before a server takes them.

    Args:
        servers: that share one queue, at least 1.
        service_s: what each request takes, seconds.
        utilisation: busy share of each server; 1 or more: the queue grows without end.
        quantile: in (0, 1), as 0.95.
    """
    if utilisation >= 1:
        return math.inf
    delayed = delay_probability(servers, utilisation)
    if delayed <= 1 - quantile:
        return 0.0
    decay = 2 * servers * (1 - utilisation) / service_s
    return math.log(delayed / (1 - quantile)) / decay
