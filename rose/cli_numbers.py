"""Ranges of the commands' numbers, without what is no number."""

import math

import click

from rose.bench.results import LEAST_USD, MOST_USD


class Finite(click.FloatRange):
    """A range that refuses nan, too, which lies in every range of click's."""

    def convert(
        self, value: float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """See click.ParamType."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no number to count with", param, ctx)
        return number


USD = Finite(LEAST_USD, MOST_USD)
"""Of a GPU-hour."""
