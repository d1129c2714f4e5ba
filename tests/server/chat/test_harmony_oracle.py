"""Against openai-harmony 0.0.8, token by token, with the published vocabulary.

Where that library differs from us on purpose, `test_harmony_render` and `test_harmony_parser` state
the right form; here its form is turned into ours before comparing.
"""

import random
import re

import pytest
from harmony_conversations import GOLDEN, TEXTS, Generator, call, final, preamble, thought
from harmony_text import conversation_with, ids_of, seen, turn_of
from o200k_tokenizer import SPECIALS

from rose.server.chat.format import (
    ContentDelta,
    Conversation,
    FunctionTool,
    Message,
    ReasoningDelta,
    ResponseSchema,
)
from rose.server.chat.harmony import HarmonyFormat, encode_pieces, render_turn_pieces
from rose.server.chat.turn import ParsedCall, ParsedTurn, parse_turn

harmony = pytest.importorskip("openai_harmony")
ROLES = harmony.Role
CHANNEL_AFTER_RECIPIENT = re.compile(r"assistant( to=[^<]+)<\|channel\|>commentary")


def oracle_ids(encoding, conversation: Conversation, *, drop_analysis: bool = True) -> list[int]:
    """What the library renders, with calls in the model's own form."""
    messages = [_system(conversation), *_developer(conversation)]
    messages += [
        _message(m) for m in conversation.messages if m.role not in ("system", "developer")
    ]
    config = harmony.RenderConversationConfig(auto_drop_analysis=drop_analysis)
    return encoding.render_conversation_for_completion(
        harmony.Conversation.from_messages(messages), ROLES.ASSISTANT, config=config
    )


def in_own_form(encoding, ids: list[int]) -> list[int]:
    """The library's rendering with channels before recipients; contents are left as they are."""
    own: list[int] = []
    header: list[int] = []
    in_header = False
    for token_id in ids:
        in_header = token_id != SPECIALS["<|message|>"] and (
            in_header or token_id == SPECIALS["<|start|>"]
        )
        if in_header:
            header.append(token_id)
            continue
        own += [*_reordered(encoding, encoding.decode(header)), token_id]
        header = []
    return own + _reordered(encoding, encoding.decode(header))


def _reordered(encoding, header: str) -> list[int]:
    swapped = CHANNEL_AFTER_RECIPIENT.sub(r"assistant<|channel|>commentary\1", header)
    return encoding.encode(swapped, allowed_special="all")


def _system(conversation: Conversation):
    efforts = {e.value.lower(): e for e in harmony.ReasoningEffort}
    content = harmony.SystemContent.new()
    content = content.with_reasoning_effort(efforts[conversation.reasoning_effort])
    if conversation.current_date:
        content = content.with_conversation_start_date(conversation.current_date)
    for message in conversation.messages:
        if message.role == "system":
            content = content.with_model_identity(message.content)
    return harmony.Message.from_role_and_content(ROLES.SYSTEM, content)


def _developer(conversation: Conversation) -> list:
    instructions = [m.content for m in conversation.messages if m.role == "developer"]
    if not (instructions or conversation.tools or conversation.response_schema):
        return []
    content = harmony.DeveloperContent.new()
    for text in instructions:
        content = content.with_instructions(text)
    if conversation.tools:
        content = content.with_function_tools([_tool(tool) for tool in conversation.tools])
    return [harmony.Message.from_role_and_content(ROLES.DEVELOPER, content)]


def _tool(tool: FunctionTool):
    return harmony.ToolDescription.new(tool.name, tool.description, parameters=tool.parameters)


def _message(message: Message):
    if message.role == "tool":
        author = harmony.Author.new(ROLES.TOOL, f"functions.{message.name}")
        result = harmony.Message.from_author_and_content(author, message.content)
        return result.with_channel("commentary").with_recipient("assistant")
    role = ROLES.USER if message.role == "user" else ROLES.ASSISTANT
    written = harmony.Message.from_role_and_content(role, message.content)
    if message.channel:
        written = written.with_channel(message.channel)
    if message.recipient:
        written = written.with_recipient(f"functions.{message.recipient}")
        written = written.with_content_type("<|constrain|>json")
    return written


def test_the_vocabularies_agree(o200k_codec, harmony_encoding):
    dice = random.Random(0)
    alphabet = [*map(chr, range(32, 127)), *"\n\r\t  éßñ日本🌹\u200d", "the ", "<|end|>"]
    for _ in range(500):
        text = "".join(dice.choices(alphabet, k=40))
        assert o200k_codec.encode_plain(text) == harmony_encoding.encode(
            text, disallowed_special=()
        )


@pytest.mark.parametrize("name", [name for name in GOLDEN if name != "response_format"])
def test_golden_conversations_are_token_identical(name, o200k_codec, harmony_encoding):
    conversation = GOLDEN[name]
    ours = HarmonyFormat(o200k_codec).render(conversation)
    theirs = oracle_ids(harmony_encoding, _without_old_analysis(conversation), drop_analysis=False)
    assert ours == in_own_form(harmony_encoding, theirs)


def _without_old_analysis(conversation: Conversation) -> Conversation:
    messages = list(conversation.messages)
    finals = [n for n, m in enumerate(messages) if m.channel == "final"]
    last = max(finals, default=-1)
    kept = [m for n, m in enumerate(messages) if n > last or m.channel != "analysis"]
    return Conversation(
        messages=kept,
        tools=conversation.tools,
        reasoning_effort=conversation.reasoning_effort,
        current_date=conversation.current_date,
    )


def test_a_response_format_follows_what_the_library_writes(o200k_codec, harmony_encoding):
    """The library has no response formats; the guide puts them at the developer message's end."""
    conversation = GOLDEN["response_format"]
    assert isinstance(conversation.response_schema, ResponseSchema)
    ours = HarmonyFormat(o200k_codec).render(conversation)
    text = harmony_encoding.decode(ours)
    at = text.index("\n\n# Response Formats")
    without = text[:at] + text[text.index("<|end|>", at) :]
    assert harmony_encoding.encode(without, allowed_special="all") == oracle_ids(
        harmony_encoding, conversation
    )


@pytest.mark.parametrize("finals", [0, 1])
def test_generated_conversations_are_token_identical(finals, o200k_codec, harmony_encoding):
    """With one final at most, so that the library drops the right analysis."""
    generator = Generator(seed=finals)
    format_ = HarmonyFormat(o200k_codec)
    for _ in range(150):
        conversation = generator.conversation(finals=finals)
        theirs = oracle_ids(harmony_encoding, conversation)
        assert format_.render(conversation) == in_own_form(harmony_encoding, theirs)


def test_with_several_finals_only_dropped_analysis_differs(o200k_codec, harmony_encoding):
    generator = Generator(seed=2)
    format_ = HarmonyFormat(o200k_codec)
    for _ in range(50):
        conversation = generator.conversation(finals=3)
        stripped = _without_old_analysis(conversation)
        theirs = oracle_ids(harmony_encoding, stripped, drop_analysis=False)
        assert format_.render(conversation) == in_own_form(harmony_encoding, theirs)


def test_generated_schemas_are_token_identical(o200k_codec, harmony_encoding):
    generator = Generator(seed=3)
    format_ = HarmonyFormat(o200k_codec)
    for _ in range(300):
        conversation = Conversation(messages=(), tools=[generator.tool("f")])
        assert format_.render(conversation) == oracle_ids(harmony_encoding, conversation)


def _oracle_turn(encoding, ids: list[int]) -> ParsedTurn:
    """The library's messages as a turn."""
    turn = ParsedTurn()
    for message in encoding.parse_messages_from_completion_tokens(ids, ROLES.ASSISTANT):
        text = message.content[0].text
        if message.recipient and message.recipient.startswith("functions."):
            turn.calls.append(_call_of(message.recipient, text))
        elif message.channel == "analysis":
            turn.add(ReasoningDelta(text))
        else:
            turn.add(ContentDelta(text))
    return turn


def _call_of(recipient: str, arguments: str) -> ParsedCall:
    return ParsedCall(recipient.removeprefix("functions."), arguments)


def test_whole_turns_parse_as_the_library_parses_them(o200k_codec, harmony_encoding):
    dice = random.Random(4)
    format_ = HarmonyFormat(o200k_codec)
    for _ in range(300):
        texts = dice.choices(TEXTS, k=4)
        turn = [thought(texts[0]), *dice.choice([[], [preamble(texts[1])], [thought(texts[2])]])]
        turn.append(dice.choice([call("f", texts[3]), final(texts[3])]))
        ids = encode_pieces(render_turn_pieces(turn), o200k_codec)
        ours = parse_turn(format_.parser(conversation_with("f")), ids)
        assert seen(ours) == seen(_oracle_turn(harmony_encoding, ids))


@pytest.mark.parametrize(
    "header",
    [
        " to=functions.f<|channel|>commentary <|constrain|>json",
        " to=functions.f<|channel|>commentary json",
        " to=functions.f<|channel|>analysis code",
        "<|channel|>commentary to=functions.f",
        "<|channel|>commentary to=functions.f<|constrain|>json",
        "<|channel|>commentary to=functions.f code",
        "<|channel|>commentary functions.f <|constrain|>json",
        "<|channel|>analysis",
        "<|channel|>commentary",
        "<|channel|>final",
        "<|channel|>final <|constrain|>json",
        "",
    ],
)
def test_headers_that_the_library_takes_mean_the_same(header, o200k_codec, harmony_encoding):
    transcript = f"{header}<|message|>{{}}"
    theirs = _oracle_turn(harmony_encoding, ids_of(o200k_codec, transcript))
    assert seen(turn_of(o200k_codec, transcript, "f")) == seen(theirs)
