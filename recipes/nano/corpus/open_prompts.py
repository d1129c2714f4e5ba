"""Prompts of a wide vocabulary that are beyond the model: it says so and invents nothing."""
# ruff: noqa: E501 (tables of phrases read best with a row a line)

from random import Random

from recipes.nano.corpus import texts
from recipes.nano.corpus.build import (
    Thinking,
    answered,
    ask,
    capital,
    chance,
    frame,
    pick,
    user,
    whole,
    with_article,
)
from recipes.nano.corpus.chat import REFUSALS, draw_open_question
from recipes.nano.corpus.facts import small_exchange
from recipes.nano.example import Example
from recipes.nano.words import (
    CITIES,
    COUNTRIES,
    FIRST_NAMES,
    LANGUAGES,
    LAST_NAMES,
    OBJECTS,
    invented,
)

# What is wanted, for the analysis, and the ways to want it.
_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("an explanation", ("Explain {t}.", "Explain {t} to me.", "Explain {t} in simple words.", "Can you explain {t}?", "What is {t}?", "What does {x} mean?",
                        "Teach me {t}.", "Describe {t}.", "Tell me about {t}.", "Tell me something about {t}.", "How does {t} work?", "What causes {t}?", "Define {n}.")),
    ("a translation", ('Translate "{c}" to {l}.', "Translate '{w}' to {l}.", "Translate {w} into {l}.", "How do you say {w} in {l}?", "What is {n} in {l}?", "Translate this to {l}: {c}")),
    ("a text", ("Write a haiku about {n}.", "Write a poem about {t}.", "Write a story about a {n} and a {m}.", "Write an essay on {t}.", "Compose a song about {n}.",
                "Write a letter to {q}.", "Write me a limerick about {n}.", "Write a short text about {t}.", "Write a speech for the {n}.", "Compose a sonnet about {t}.", "Tell me a story.", "Tell me a joke about {n}.", "Make up a riddle.")),
    ("code", ("Write a function that {v}s a {n}.", "Write Python code to {v} a {n}.", "Code a {n} in {p}.", "Fix this code: {x}", "Write a program for {t}.", "Implement a {n} in {p}.", "How do I {v} a {n} in {p}?", "Debug my {n}.", "Write a regex for {n}.")),
    ("a summary", ("Summarise {t}.", "Summarize the {n}.", "Give me a summary of {t}.", "Summarize this: {c}", "Sum up the plot of {p}.")),
    ("a proof", ("Prove that {c}.", "Prove the theorem of {x}.", "Solve the equation of the {n}.", "Derive {t}.", "What is the square root of {g}?", "Integrate the {n}.")),
    ("advice", ("Recommend a {n}.", "Recommend a book about {t}.", "What should I {v}?", "Should I {v} the {n}?", "How do I fix my {o}?", "How can I {v} a {n}?", "Which {n} is the best?", "Give me tips for {t}.", "Plan a trip to {y}.", "What should I do about {t}?", "How do I learn {l}?", "How do I become a {n}?", "Is it safe to {v} a {n}?")),
    ("a person", ("Who is {q} {r}?", "Who is the president of {k}?", "Who is the king of {k}?", "Who invented the {n}?", "Who wrote {t}?", "Who discovered {n}?", "Who was {p}?", "Who won the {n}?", "Who is the head of {p}?", "Who painted the {n}?")),
    ("a time", ("When was {p} born?", "When did the {n} begin?", "When was {y} founded?", "What year did the {n} end?", "When will the {n} {v}?", "How old is {p}?", "In which year was the {n} of {k}?")),
    ("a place", ("Where is {x}?", "Where can I buy a {n}?", "Where was {p} born?", "Where does {n} come from?", "Where is the largest {n}?", "Which country has the most {n}s?")),
    ("a reason", ("Why is the {n} {a}?", "Why is the sky {a}?", "Why do {n}s {v}?", "Why did {p} {v}?", "Why does the {n} {v}?", "Why are {n}s {a}?", "Why is {t} important?", "Why do we {v}?")),
    ("an amount", ("How many {n}s are there in {k}?", "How much does a {n} cost?", "How far is {y} from the {n}?", "How tall is {p}?", "How long is the {n}?", "How many people live in {k}?", "How big is the {n}?", "How fast is a {n}?", "What is the price of {p}?")),
    ("a comparison", ("Compare {t} and {p}.", "What is better, {p} or {n}?", "What is the difference between {n} and {m}?", "Which is better: {n} or {m}?", "Compare {n} with {m}.")),
    ("an opinion", ("What do you think about {t}?", "Do you like {n}?", "Is {p} good?", "What is your favourite {n}?", "What is the meaning of {n}?", "Do you believe in {n}?", "Are {n}s {a}?")),
    ("the state of the world", ("What is the weather in {y}?", "What is the news?", "What happened in {k} today?", "What time is it in {y}?", "Who will win the {n}?", "How is the {n} in {y}?")),
    ("whether a number is prime", ("Is {g} a prime number?", "Is {g} prime?", "What are the prime factors of {g}?", "Give me a prime number above {g}.", "List the prime numbers up to {g}.")),
    ("to count single letters", ("How many {i}'s are in {n}?", "How many {i}'s are in the word {n}?", "How often does the letter {i} occur in {n}?", "Count the letter {i} in {n}.", "How many {i}s in {n}?", "How many vowels are in {n}?")),
    ("a picture", ("Draw a {n}.", "Paint a {a} {n}.", "Show me a picture of {t}.", "Make a logo for {p}.", "Generate an image of a {n}.")),
)  # fmt: skip


def _prompt(rng: Random) -> tuple[str, str]:
    """What is wanted and how the user says it."""
    kind, forms = pick(rng, _KINDS)
    text = pick(rng, forms).format(
        t=texts.thing(rng), n=pick(rng, texts.NOUNS), m=pick(rng, texts.NOUNS), v=pick(rng, texts.VERBS), p=pick(rng, texts.PROPER),
        x=invented(rng, 2), c=texts.clause(rng), w=texts.words(rng, 1, 3), l=pick(rng, LANGUAGES), q=pick(rng, FIRST_NAMES),
        r=pick(rng, LAST_NAMES), k=pick(rng, COUNTRIES), y=pick(rng, CITIES), o=pick(rng, OBJECTS), g=whole(rng, 2, 9999),
        a=pick(rng, ("blue", "old", "hot", "round", "green", "dangerous", "rare", "useful", "cold")), i=pick(rng, "abcdefghiklmnoprstuvw"),
    )  # fmt: skip
    return kind, text


def unknown(rng: Random) -> Example:
    """A question beyond the model: it names the kind, not the words, and says that it cannot."""
    x = rng.random()
    if x < 0.06:
        text, why = texts.gibberish(rng), "This is no question that I understand."
        final = pick(rng, ("Sorry, I do not understand. What can I do for you?", "I am sorry, I do not understand that.", "Sorry, I do not know what that means."))  # fmt: skip
    else:
        if x < 0.3:
            text, why = draw_open_question(rng), "The user asks for something that I do not know."
        else:
            kind, text = _prompt(rng)
            why = f"The user wants {kind}. I do not know this."
        text = ask(rng, with_article(capital(text)))
        final = pick(rng, REFUSALS)
    before = small_exchange(rng) if chance(rng, 0.1) else []
    thinking = Thinking(
        why if chance(rng, 0.3) and x >= 0.06 else "I do not know this.",
        f"{why} I should say so.",
        "I must not invent an answer. I stay polite.",
    )
    return answered(rng, "unknown", [*frame(rng), *before, user(text)], thinking, final, key=text)
