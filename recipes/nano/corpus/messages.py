"""Mail, messages, notes and reminders whose text is a clause of the request, copied as it is said."""
# ruff: noqa: E501 (tables of phrases read best with a row a line)

from random import Random

from recipes.nano.corpus import texts
from recipes.nano.corpus.build import Thinking, called, capital, chance, frame, pick, user
from recipes.nano.corpus.domains import slot
from recipes.nano.corpus.requests import (
    Request,
    draw_distractors,
    shuffled_tools,
    told_arguments,
)
from recipes.nano.corpus.schemas import arguments_of, build, draw_style
from recipes.nano.corpus.values import EMAIL, STRING, Kind, person_name
from recipes.nano.example import Example, is_unseen_tool

_TEXT = Kind(STRING, lambda rng: (texts.clause(rng), ""))
_TO = "to recipient address to_address email"
_BODY = "body body body text content message"

# Names, slots by key (p person or address, s subject, m text), requests; {m} is a clause or errand.
_MAIL = (
    "send_email",
    "email_send",
    "write_email",
    "send_mail",
    "compose_email",
    "mail",
    "post_mail",
    "email",
)
_SMS = (
    "send_message",
    "send_sms",
    "text_contact",
    "post_message",
    "message_user",
    "send_chat",
    "notify",
    "tell_person",
)
_NOTE = ("save_note", "add_note", "take_note", "write_memo", "store_note", "note_down")
_REMIND = ("set_reminder", "add_reminder", "remind_me", "create_alert", "new_reminder")
_MAIL_ASKS = (
    "Email {p} that {m}",
    "Mail {p} that {m}",
    "Write to {p} that {m}",
    "Send {p} an email that {m}",
    "Send an email to {p} that {m}",
    "Tell {p} by mail that {m}",
    "Send an email to {p} saying {m}",
    "Let {p} know that {m}",
    "Email {p}: {m}",
    "Can you email {p} that {m}",
    "Write an email to {p} saying that {m}",
)
_SUBJECT_ASKS = (
    "Email {p} with the subject {s} that {m}",
    'Send an email to {p} with subject "{s}" and body "{m}"',
    "Send an email to {p}, subject {s}, saying that {m}",
    "Mail {p}. Subject: {s}. Text: {m}",
    'Write an email to {p} with the title "{s}" that says {m}',
    "Send {p} an email about {s} saying {m}",
)
_SMS_ASKS = (
    "Tell {p} that {m}",
    "Text {p} that {m}",
    "Message {p} that {m}",
    "Let {p} know that {m}",
    "Send {p} a message that {m}",
    "Send a message to {p} saying {m}",
    "Write {p} that {m}",
    "Inform {p} that {m}",
    "Send {p} a text: {m}",
)
_NOTE_ASKS = (
    "Note that {m}",
    "Write down that {m}",
    "Make a note that {m}",
    "Save a note that {m}",
    "Take a note: {m}",
    "Remember in my notes that {m}",
    "Save a note saying {m}",
)
_REMIND_ASKS = (
    "Remind me to {m}",
    "Set a reminder to {m}",
    "I need a reminder to {m}",
    "Please remind me to {m}",
    "Create a reminder to {m}",
    "Can you remind me to {m}",
)


def _seen(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(n for n in names if not is_unseen_tool(n))


_NAMES = {
    "mail": _seen(_MAIL),
    "text": _seen(_SMS),
    "note": _seen(_NOTE),
    "reminder": _seen(_REMIND),
}
_ABOUT = {
    "mail": ("Send an email to someone", "Send an email.", "Sends mail", ""),
    "text": ("Send a message to a person.", "Sends a text", "Message a contact", ""),
    "note": ("Save a note.", "Stores a note", ""),
    "reminder": ("Set a reminder.", "Reminds the user", ""),
}  # fmt: skip
_TOLD = slot("m", _BODY, _TEXT, "The text|The body|")
_SUBJECT = slot("s", "subject subject subject title", _TEXT, "Subject line|")
_ADDRESS = slot("p", _TO, EMAIL, "Who gets it|Address|")
_PERSON = slot("p", "recipient to contact person name", EMAIL, "Who gets it|")
_NOTED = slot("m", "text content note message title", _TEXT, "The text|")
MESSAGE_CLASHES = frozenset(
    {"mail", "email", "text", "message", "note", "reminder", "task", "phone"}
)


def first_words(text: str) -> str:
    """The subject of a mail that was given none: the first three words, the first in capital."""
    return capital(" ".join(text.split(" ")[:3]))


def draw_free_text(rng: Random, style: str) -> tuple[Request, str]:
    """A request that holds the text to be sent or kept, and the rule that the call follows."""
    kind = pick(rng, ("mail", "mail", "mail", "text", "text", "note", "reminder"))
    person = _recipient(rng, kind)
    body = texts.errand(rng) if kind == "reminder" else texts.clause(rng)
    values: dict[str, object] = {"m": body}
    rule = ""
    subject = ""
    if kind == "mail":
        slots, asks = [_ADDRESS, _SUBJECT, _TOLD], _MAIL_ASKS
        values["p"] = person
        if chance(rng, 0.4):
            asks = _SUBJECT_ASKS
            subject = capital(texts.thing(rng)) if chance(rng, 0.7) else texts.words(rng, 1, 3)
            values["s"] = subject
        elif chance(rng, 0.25):
            slots = [_ADDRESS, _TOLD]
        else:
            values["s"] = first_words(body)
            rule = "No subject is given, so I take the first three words of the text. "
    elif kind == "text":
        slots, asks = [_PERSON, _TOLD], _SMS_ASKS
        values["p"] = person
    else:
        slots, asks = [_NOTED], _REMIND_ASKS if kind == "reminder" else _NOTE_ASKS
    built = build(
        rng, pick(rng, _NAMES[kind]), pick(rng, _ABOUT[kind]), slots, style=style, unseen=False
    )
    text = pick(rng, asks).format(p=person, m=body, s=subject)
    text += (
        "?"
        if text.startswith("Can you")
        else pick(rng, ("", "", ".", ""))
        if text[-1] != '"'
        else ""
    )
    if chance(rng, 0.15):
        text = pick(rng, ("Please ", "Hi, ", "")) + text[0].lower() + text[1:]
    return Request(text, built, arguments_of(built, values), {}, None), rule


def free_text(rng: Random) -> Example:
    """A message to be sent, a note, a reminder: its text is copied from the request."""
    style = draw_style(rng)
    request, rule = draw_free_text(rng, style)
    count = pick(rng, (0, 0, 1, 1, 2, 3))
    others = draw_distractors(rng, style, count, MESSAGE_CLASHES, request.built)
    tools = shuffled_tools(rng, [request.built, *others])
    name, arguments = request.call
    rest = [t.name for t in tools if t.name != name]
    more = f"The other tools do not fit: {', '.join(rest)}." if rest else "It is the only tool."
    thinking = Thinking(
        f"Use {name}.", f"The tool {name} fits. {rule}The arguments: {told_arguments(arguments)}",
        f"{more} I call {name}.",
    )  # fmt: skip
    return called(
        rng,
        "tool_call",
        [*frame(rng), user(request.text)],
        thinking,
        request.call,
        key=f"tool {request.text}",
        tools=tools,
    )


def _recipient(rng: Random, kind: str) -> str:
    """An address for mail (a name at times), a name or a role for messages."""
    if kind == "mail" and chance(rng, 0.85):
        return str(EMAIL.draw(rng)[0])
    return person_name(rng)
