"""`rose bench`: the group of the measuring commands; each is imported when it is asked for."""

from importlib import import_module

import click

_MODULES = {
    "prefill": "rose.cli_bench_engine",
    "decode": "rose.cli_bench_engine",
    "roofline": "rose.cli_bench_engine",
    "compare": "rose.cli_bench_engine",
    "profile": "rose.cli_bench_profile",
    "serve": "rose.cli_bench_serve",
    "report": "rose.cli_bench_report",
}
"""Where each command is, under its own name; in the order of --help."""


class _LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        command = getattr(import_module(_MODULES[cmd_name]), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_LazyGroup)
def bench() -> None:
    """Measure an engine, a server or this machine; compare and draw the results.

    Results are JSON files that hold every sample, the machine and the versions.
    """
