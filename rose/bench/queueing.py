"""How long a request waits for a server: the M/D/c queue in closed form.

Arrivals are random (Poisson), every request takes the same time, the first free server takes the
first that waits. The chance to wait is Sakasegawa's (Ann. Inst. Statist. Math. 29, 1977). Of those
that wait the tail is taken as exponential with a rate between its two limits: with little load the
first of `servers` requests in service ends soon (servers / service_s), with much load constant
times halve the wait of M/M/c. Tests hold both against a simulation.
"""

import math


def delay_probability(servers: float, utilisation: float) -> float:
    """The chance that all servers are busy when a request arrives; exact for one server.

    Args:
        servers: at least 1; not whole where traffic comes in bursts.
        utilisation: busy share of each, in [0, 1).
    """
    return float(utilisation ** (math.sqrt(2 * (servers + 1)) - 1))


def wait_quantile(servers: float, service_s: float, utilisation: float, quantile: float) -> float:
    """Seconds that `quantile` of the requests wait at most before a server takes them.

    Args:
        servers: that share one queue, at least 1; not whole where traffic comes in bursts.
        service_s: what each request takes, seconds.
        utilisation: busy share of each server; 1 or more: the queue grows without end.
        quantile: in (0, 1), as 0.95.
    """
    if utilisation >= 1:
        return math.inf
    delayed = delay_probability(servers, utilisation)
    if delayed <= 1 - quantile:
        return 0.0
    decay = servers * (1 - utilisation**2) / service_s
    return math.log(delayed / (1 - quantile)) / decay
