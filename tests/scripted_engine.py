"""A program: an engine process over the fake executor, which can be slow or fail on demand.

It is slow for as long as a test wants: loading takes --load-s and each step --step-s until the file
--hurry exists; from then on they take no time. So what a test must see in between can be long, and
need not be waited for.

Sampled ids are printable ASCII in the tokenizer's order, unless `--sample-below` says otherwise.
"""

import argparse
import time
from pathlib import Path

from rose.config import CacheConfig, ConfigError, SchedulerConfig
from rose.engine.front_ends import Timing
from rose.engine.loop import run_engine_process
from tests.fakes import FakeExecutor, fake_engine

VOCAB_SIZE = 265
PRINTABLE = 94
EOS = 258
MAX_MODEL_LEN = 2048


class PacedExecutor(FakeExecutor):
    """Takes some seconds a step, until there is a file."""

    def __init__(
        self, vocab_size: int, step_s: float, hurry: Path | None, fail_at_step: int | None
    ) -> None:
        super().__init__(vocab_size, fail_at_step=fail_at_step)
        self.step_s, self.hurry = step_s, hurry

    def run_oldest(self) -> None:
        dawdle(self.step_s, self.hurry)
        super().run_oldest()


def dawdle(seconds: float, hurry: Path | None) -> None:
    """Sleep so long, or until the file exists."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not (hurry and hurry.exists()):
        time.sleep(min(left, 0.02))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoint")
    parser.add_argument("--step-s", type=float, default=0.0)
    parser.add_argument("--load-s", type=float, default=0.0)
    parser.add_argument("--hurry", type=Path, metavar="FILE")
    parser.add_argument("--fail-load", default="")
    parser.add_argument("--fail-at-step", type=int)
    parser.add_argument("--vocab-size", type=int, default=VOCAB_SIZE)
    parser.add_argument("--sample-below", type=int, default=PRINTABLE)
    parser.add_argument("--max-num-seqs", type=int, default=8)
    parser.add_argument("--parent-pid", type=int)
    parser.add_argument("--heartbeat-s", type=float, default=0.1)
    # Long enough that no pause of the machine looks like a front end's end.
    parser.add_argument("--front-end-timeout-s", type=float, default=600.0)
    parser.add_argument("--farewell-s", type=float, default=600.0)
    args = parser.parse_args()

    def make_engine():
        dawdle(args.load_s, args.hurry)
        if args.fail_load:
            raise ConfigError(args.fail_load)
        executor = PacedExecutor(args.vocab_size, args.step_s, args.hurry, args.fail_at_step)
        cache = CacheConfig(block_size=16, num_blocks=(512, 256), window=8)
        scheduler = SchedulerConfig(args.max_num_seqs, max_batched_tokens=64, chunk_size=32)
        engine = fake_engine(
            executor,
            scheduler=scheduler,
            cache=cache,
            max_model_len=MAX_MODEL_LEN,
            eos=(EOS,),
        )
        executor.vocab_size = args.sample_below
        return engine

    timing = Timing(args.heartbeat_s, args.front_end_timeout_s, args.farewell_s)
    return run_engine_process(args.endpoint, make_engine, parent_pid=args.parent_pid, timing=timing)


if __name__ == "__main__":
    raise SystemExit(main())
