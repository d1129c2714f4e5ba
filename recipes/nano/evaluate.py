"""How good a nano is, on prompts that training never saw.

    python -m recipes.nano.evaluate [MODEL] [--quantization mxfp4] [--per-task 60] [--strict]

Every turn is written greedily by the engine, in batches, judged by `recipes.nano.scoring`, and
counted against what the model is to reach. `--compare` repeats it in the other precisions.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from recipes.nano.corpus import TASKS
from recipes.nano.heldout import Case, effort_cases, heldout_cases
from recipes.nano.report import Judged, Report, make_report, print_report
from recipes.nano.scoring import TurnGrammar, is_right, parse_turn
from rose.llm import LLM
from rose.options import QuantizationChoice
from rose.protocol import SamplingParams, UserError
from rose.server.chat.harmony import HarmonyFormat
from rose.server.detokenize import TextCodec

MAX_TURN_TOKENS = 512
KV_CACHE_BYTES = 2 << 30
POINTS_APART = 0.01
"""How far the precisions may differ, in the share of right answers and in each target."""

Write = Callable[[Sequence[Case]], list[list[int]]]
"""Writes the ids of the turns that answer some cases, in their order."""


def _load_codec(folder: Path) -> TextCodec:
    """The checkpoint's tokenizer.

    Raises:
        UserError: it has none.
    """
    codec = TextCodec.load(folder)
    if codec is None:
        raise UserError(f"{folder} has no tokenizer.json, and so cannot speak Harmony")
    return codec


def engine_writer(llm: LLM, chat_format: HarmonyFormat, max_tokens: int) -> Write:
    """Writes turns of at most `max_tokens` greedily with a model."""
    params = SamplingParams(
        temperature=0, max_tokens=max_tokens, stop_token_ids=chat_format.stop_token_ids
    )

    def write(cases: Sequence[Case]) -> list[list[int]]:
        prompts = [chat_format.render(case.example.conversation) for case in cases]
        results = llm.generate(prompts, params, progress=sys.stderr.isatty())
        return [result.token_ids for result in results]

    return write


class Evaluation:
    """The cases and their judges.

    Args:
        cases: of the tasks.
        efforts: the same prompts at each reasoning effort.
        codec: the model's tokenizer.
    """

    def __init__(self, cases: Sequence[Case], efforts: Sequence[Case], codec: TextCodec) -> None:
        self.cases = cases
        self.efforts = efforts
        self.codec = codec
        self.chat_format = HarmonyFormat(codec)
        self._grammar = TurnGrammar(codec)

    def judge(self, case: Case, token_ids: Sequence[int]) -> Judged:
        """Judge one turn."""
        turn = parse_turn(self.chat_format, case.example, token_ids)
        well_formed = self._grammar.accepts(token_ids)
        return Judged(
            row=case.row,
            task=case.example.task,
            well_formed=well_formed,
            right=well_formed and is_right(case.example, turn),
            reasoning_tokens=len(self.codec.encode(turn.reasoning)),
        )

    def run(self, name: str, write: Write, *, show: int = 0) -> Report:
        """Have all turns written, and judge them.

        Args:
            name: of the model, for the report.
            write: the model.
            show: print this many transcripts of each row, the wrong ones first.
        """
        everything = [*self.cases, *self.efforts]
        turns = write(everything)
        judged = [self.judge(c, t) for c, t in zip(everything, turns, strict=True)]
        if show:
            self._show(everything, turns, judged, show)
        count = len(self.cases)
        return make_report(name, judged[:count], judged[count:])

    def _show(
        self,
        cases: Sequence[Case],
        turns: Sequence[Sequence[int]],
        judged: Sequence[Judged],
        count: int,
    ) -> None:
        shown = dict.fromkeys((case.row for case in cases), 0)
        order = sorted(range(len(cases)), key=lambda i: judged[i].right and judged[i].well_formed)
        for i in order:
            row = cases[i].row
            if shown[row] == count:
                continue
            shown[row] += 1
            marks = ("" if judged[i].right else "WRONG ") + (
                "" if judged[i].well_formed else "MALFORMED "
            )
            example = cases[i].example
            prompt = self.chat_format.render(example.conversation)
            print(f"\n=== {row} {marks}(expected: {example.expected})")
            print(self.codec.decode(prompt, skip_special_tokens=False), end=" >>> ")
            print(self.codec.decode(turns[i], skip_special_tokens=False))


def evaluate_model(
    model: str,
    *,
    quantization: str,
    device: str,
    batch: int,
    cases: Sequence[Case],
    efforts: Sequence[Case],
    max_tokens: int = MAX_TURN_TOKENS,
    show: int = 0,
) -> Report:
    """Measure one model in one precision, through the engine."""
    # A GPU's whole memory would be too much for such a model, and leave others none.
    cache = {"kv_cache_bytes": KV_CACHE_BYTES} if device == "cuda" else {}
    with LLM(model, quantization=quantization, device=device, max_num_seqs=batch, **cache) as llm:
        evaluation = Evaluation(cases, efforts, _load_codec(Path(llm.info.model_path)))
        begun = time.perf_counter()
        write = engine_writer(llm, evaluation.chat_format, max_tokens)
        report = evaluation.run(f"{llm.info.model}: {llm.info.description}", write, show=show)
        seconds, stats = time.perf_counter() - begun, llm.stats
    print(
        f"{stats.prompt_tokens} prompt tokens read and {stats.generated_tokens} written in "
        f"{seconds:.0f} s",
        file=sys.stderr,
    )
    return report


def differences(first: Report, other: Report) -> list[str]:
    """Where another precision is too far from the first."""
    pairs = [("right answers", _share(first), _share(other))]
    pairs += [
        (mine.name, mine.share, its.share)
        for mine, its in zip(first.targets, other.targets, strict=True)
    ]
    return [
        f"{other.model}: {name} {its:.1%}, but {mine:.1%} in {first.model}"
        for name, mine, its in pairs
        if round(abs(its - mine), 9) > POINTS_APART
    ]


def _share(report: Report) -> float:
    return report.total.right / max(1, report.total.turns)


def _parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure a nano on held-out prompts.")
    parser.add_argument("model", nargs="?", default="nano")
    parser.add_argument("--quantization", choices=get_args(QuantizationChoice), default="mxfp4")
    parser.add_argument("--compare", action="store_true", help="also in the other precisions")
    parser.add_argument("--per-task", type=int, default=60, help="prompts of each row")
    parser.add_argument("--efforts", type=int, default=30, help="prompts run at every effort")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, metavar="TASK")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=int, default=64, help="sequences in a step")
    parser.add_argument("--max-tokens", type=int, default=MAX_TURN_TOKENS, help="of a turn")
    parser.add_argument("--json", type=Path, help="also write what was found to this file")
    parser.add_argument("--show", type=int, default=0, help="print this many turns of each row")
    parser.add_argument("--strict", action="store_true", help="exit 1 below what is required")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit status whether it is enough."""
    args = _parse_arguments(words)
    cases = heldout_cases(args.per_task, args.tasks)
    efforts = effort_cases(cases, args.efforts)
    precisions = [args.quantization]
    if args.compare:
        precisions += [q for q in ("mxfp4", "bf16", "fp8") if q not in precisions]
    reports: list[Report] = []
    for quantization in precisions:
        report = evaluate_model(
            args.model,
            quantization=quantization,
            device=args.device,
            batch=args.batch,
            cases=cases,
            efforts=efforts,
            max_tokens=args.max_tokens,
            show=0 if reports else args.show,
        )
        print_report(report)
        reports.append(report)
    failures = [failure for report in reports for failure in report.failures]
    failures += [line for other in reports[1:] for line in differences(reports[0], other)]
    if args.json:
        args.json.write_text(json.dumps([asdict(r) for r in reports], indent=1) + "\n")
    for failure in failures:
        print(f"below target: {failure}")
    return 1 if failures and args.strict else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"error: {error}")
