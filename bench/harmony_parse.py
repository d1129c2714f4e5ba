"""How many tokens a second Harmony's parser takes on one core, detokenising included.

Run: python bench/harmony_parse.py path/to/tokenizer.json
"""

import argparse
import time
from pathlib import Path

from rose.server.chat.format import Conversation, FunctionTool, Message
from rose.server.chat.harmony import HarmonyFormat, encode_pieces, render_turn_pieces
from rose.server.chat.turn import parse_turn
from rose.server.detokenize import TextCodec

ROUNDS = 7
SENTENCES = "The rose has 12 petals; naïve readers count them. 日本語 🌹\n"
ARGUMENTS = '{"name": "rose", "petals": 12, "colours": ["red", "white"]} '


def long_turn(codec: TextCodec, repeats: int) -> list[int]:
    """Reasoning, a preamble and a call, as a model would write them."""
    said = [
        Message(role="assistant", channel="analysis", content=SENTENCES * repeats),
        Message(role="assistant", channel="commentary", content=SENTENCES),
        Message(role="assistant", recipient="count", content=ARGUMENTS * repeats),
    ]
    return encode_pieces(render_turn_pieces(said), codec)


def main() -> None:
    """Measure, and print the best and the median of some rounds."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("tokenizer", type=Path, help="a gpt-oss tokenizer.json")
    path: Path = arguments.parse_args().tokenizer
    codec = TextCodec.load(path.parent if path.is_file() else path)
    if codec is None:
        raise SystemExit(f"no tokenizer.json at {path}")
    harmony = HarmonyFormat(codec)
    conversation = Conversation(messages=(), tools=[FunctionTool(name="count")])
    ids = long_turn(codec, 3000)
    pushes = []
    wholes = []
    for _ in range(ROUNDS):
        parser = harmony.parser(conversation)
        began = time.perf_counter()
        for token_id in ids:
            parser.push(token_id)
        parser.flush()
        pushes.append(len(ids) / (time.perf_counter() - began))
        began = time.perf_counter()
        parse_turn(harmony.parser(conversation), ids)
        wholes.append(len(ids) / (time.perf_counter() - began))
    for name, rates in (("deltas", sorted(pushes)), ("a whole turn", sorted(wholes))):
        median, best = rates[len(rates) // 2], rates[-1]
        print(f"{name}: median {median:,.0f} tokens/s, best {best:,.0f} ({len(ids):,} tokens)")


if __name__ == "__main__":
    main()
