"""A program: `serve` with the scripted engine behind it; flags after `--` are the engine's.

Or `attach`, before engines that run at endpoints.
"""

import argparse
import os
import sys
from pathlib import Path

from rose.protocol import EngineDeadError, UserError
from rose.server.listening import bind_for
from rose.server.serve import ServeOptions, attach, serve
from rose.server.supervisor import RestartPolicy

SCRIPTED_ENGINE = Path(__file__).resolve().parents[1] / "scripted_engine.py"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokenizer-folder", type=Path)
    parser.add_argument("--drain-s", type=float, default=10.0)
    parser.add_argument("--attach", metavar="ENDPOINT", action="append")
    parser.add_argument("--engines", type=int, default=1)
    parser.add_argument("--front-ends", type=int, default=1)
    parser.add_argument("--no-restart", action="store_true")
    parser.add_argument("--restart-delay-s", type=float, default=0.2)
    parser.add_argument("--hung-s", type=float, default=30.0)
    # Long enough that no pause of the machine looks like an engine's death.
    parser.add_argument("--dead-after-s", type=float, default=600.0)
    parser.add_argument("engine_flags", nargs="*")
    args = parser.parse_args()
    flags = [*args.engine_flags, "--parent-pid", str(os.getpid())]
    try:
        sock = bind_for(args.front_ends, "127.0.0.1", args.port)
        restart = RestartPolicy(args.restart_delay_s, 600.0, max_failures=3, hung_s=args.hung_s)
        options = ServeOptions(
            tokenizer_folder=args.tokenizer_folder,
            drain_s=args.drain_s,
            dead_after_s=args.dead_after_s,
            keep_alive_s=600,  # lest a connection is closed as a client that paused posts again
            restart=None if args.no_restart else restart,
            num_engines=args.engines,
            num_front_ends=args.front_ends,
        )
        if args.attach:
            attach(sock, args.attach, options)
            return 0
        serve(sock, lambda end: [sys.executable, str(SCRIPTED_ENGINE), end, *flags], options)
    except (UserError, EngineDeadError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
