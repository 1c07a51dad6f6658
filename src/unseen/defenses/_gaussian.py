"""What Gaussian noise on sums of private records guarantees, and how much noise a guarantee takes."""

from __future__ import annotations

import math

import numpy as np

from unseen.errors import ConfigError
from unseen.training.private import epsilon_of, noise_of

EXACT = "exact Gaussian"
_PRV_MOST = 100.0
_PRV_LEAST_NOISE = 0.1
_WIDEST = (1e-3, 1e6)


def spent(sigma: float, rate: float, releases: int, delta: float) -> tuple[float, str]:
    """Epsilon of so many noisy answers that a record has a part in, and what added it up.

    Where every record has a part in each, it is exact; else the accountant PRV, or RDP where PRV would
    count for minutes.

    Args:
        sigma: standard deviation of the noise, in units of the most that one record changes.
        rate: chance of a record to be drawn for an answer; 1 for certain.
        releases: how many answers.
        delta: the chance that epsilon does not hold.
    """
    if rate >= 1:
        return exact_epsilon(sigma, releases, delta), EXACT
    loose = epsilon_of(sigma, rate, releases, delta, "rdp")
    if loose > _PRV_MOST or sigma < _PRV_LEAST_NOISE:
        return loose, "RDP"
    return min(loose, epsilon_of(sigma, rate, releases, delta, "prv")), "PRV"


def noise_for(epsilon: float, rate: float, releases: int, delta: float) -> float:
    """The least sigma that guarantees epsilon; arguments as those of `spent`.

    Raises:
        ConfigError: where none does.
    """
    if rate < 1:
        accountant = "prv" if epsilon <= _PRV_MOST else "rdp"
        return noise_of(epsilon, rate, releases, delta, accountant)
    from scipy.optimize import brentq

    low, high = _WIDEST
    if exact_epsilon(high, releases, delta) > epsilon:
        raise ConfigError(f"no noise guarantees epsilon={epsilon:g}", fix="give a larger epsilon")
    found = brentq(lambda x: exact_epsilon(math.exp(x), releases, delta) - epsilon, *np.log((low, high)))  # fmt: skip
    return float(math.exp(found))


def exact_epsilon(sigma: float, releases: int, delta: float) -> float:
    """Epsilon of n Gaussian mechanisms, which are one with mu = sqrt(n) / sigma (Dong et al. 2022).

    delta(epsilon) = Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu), from Balle & Wang
    2018, theorem 8, solved for epsilon.
    """
    from scipy.optimize import brentq
    from scipy.stats import norm

    mu = math.sqrt(releases) / sigma

    def beyond(epsilon: float) -> float:
        first = norm.logcdf(mu / 2 - epsilon / mu)
        second = epsilon + norm.logcdf(-mu / 2 - epsilon / mu)
        return float(np.exp(first) - np.exp(second)) - delta

    if beyond(0.0) <= 0:
        return 0.0
    most = mu * mu / 2 + mu * (10 + math.sqrt(2 * math.log(1 / delta)))
    return float(brentq(beyond, 0.0, most, xtol=1e-9))


def loss_epsilon(sigma: float, releases: int, delta: float) -> float:
    """What the privacy loss of n Gaussian mechanisms exceeds with chance delta alone.

    The loss is normal, with mean mu^2 / 2 and variance mu^2. It is above `exact_epsilon`, which may fail
    by a little more often, as long as it fails by little.
    """
    from scipy.stats import norm

    mu = math.sqrt(releases) / sigma
    return float(max(0.0, mu * mu / 2 - mu * norm.ppf(delta)))
