"""Small talk, identity, instructions to be followed, and saying that one does not know."""
# ruff: noqa: E501 (tables of phrases read best with a row a line)

from random import Random

from recipes.nano.corpus import texts
from recipes.nano.corpus.build import (
    Thinking,
    answered,
    ask,
    capital,
    chance,
    draw_date,
    frame,
    pick,
    user,
    whole,
)
from recipes.nano.corpus.facts import draw_fact, small_exchange
from recipes.nano.example import Example, is_heldout_key
from recipes.nano.words import (
    ADJECTIVES,
    ANIMALS,
    CITIES,
    COLOURS,
    FIRST_NAMES,
    FOODS,
    OBJECTS,
    TOPICS,
    invented,
)  # fmt: skip
from rose.server.chat.format import Message

IDENTITY = "I am rose-nano, a small language model that comes with Rose."
ABILITIES = "I can calculate with small numbers, sort lists, remember what you tell me, call tools and write JSON."

_TALK = (
    (("Hi", "Hello", "Hey", "Hi there", "Hello!", "Hi!", "Hey there", "Good day", "Greetings", "hello", "hi",
      "Hello there", "Hey!", "yo", "Good to see you"),
     ("Hello! How can I help?", "Hi! What can I do for you?", "Hello! What would you like to know?"),
     "The user greets me."),
    (("hi there", "hey there", "hi!", "hey", "Hallo", "Hello?", "hello!", "howdy", "Hi rose", "hello rose", "hola", "sup", "hiya", "Hello again", "Hi again", "hello there"),
     ("Hello! How can I help?", "Hi! What can I do for you?"), "The user greets me."),
    (("ok", "okay", "OK.", "ok.", "k", "alright", "all right", "I see", "I see.", "understood", "got it", "fine", "sure", "ok thanks", "right", "hm", "hmm", "oh", "aha", "ok cool", "Ok", "Okay", "Sure", "Alright."),
     ("Good! Can I help with anything else?", "All right. What can I do for you?"), "The user agrees."),
    (("cool", "nice", "great", "awesome", "wow", "lol", "haha", "amazing", "good", "perfect", "very nice", "that is great", "love it", "neat", "Nice!", "Awesome!", "LOL", ":)", "excellent", "good bot", "that was good", "you are great", "You are smart."),
     ("Thank you! Can I do anything else?", "I am glad! Can I help with anything else?"), "The user is content."),
    (("yes", "Yes.", "yes please", "yeah", "yep", "Yes!", "Yes, please."), ("Good. What can I do for you?",), "The user says yes."),
    (("no", "No.", "nope", "no thanks", "No, thank you.", "nothing", "not now", "never mind", "No!"), ("All right. I am here if you need me.",), "The user says no."),
    (("you are wrong", "You are wrong.", "That is wrong.", "wrong", "no, that is wrong", "That is not right.", "that's wrong", "incorrect", "That's not correct.", "You made a mistake.", "you are stupid", "bad answer", "this is bad", "That makes no sense."),
     ("I am a small model and make mistakes. Please ask me once more.",), "The user is not content."),
    (("how are you", "how are you?", "how are you doing?", "How are you doing today?", "how is it going", "How do you feel?", "Hello! How are you?", "Hi, how are you?", "Hey, how are you?", "hello how are you", "How's it going?", "are you ok?", "How was your day?"),
     ("I am fine, thank you. How can I help?", "I am well, thank you. What can I do for you?"), "The user asks how I am."),
    (("thank you", "thanks", "thanks a lot", "Thanks so much", "many thanks", "ty", "Thank you for your help.", "thank you very much", "Thanks for your help!", "Thanks, that helps.", "much appreciated", "Thx!", "thanks rose"),
     ("You are welcome!", "You are welcome.", "Gladly!"), "The user thanks me."),
    (("bye", "bye bye", "goodbye", "see you", "good night", "Good night!", "ciao", "see ya", "have a nice day", "Talk to you later.", "I have to go.", "cya", "take care"),
     ("Goodbye!", "Goodbye! See you soon."), "The user says goodbye."),
    (("help", "help me", "help!", "Help me please", "i need help", "Can you help?", "can you help me", "Could you help me?", "Please help me.", "I need your help", "I have a problem."),
     ("Of course. What do you need?", "Yes. What would you like to know?"), "The user wants help."),
    (("I am sad", "I am bored.", "I'm tired.", "I am happy", "I feel good today.", "I am hungry", "I'm bored", "I am lonely."),
     ("Thank you for telling me. How can I help?",), "The user tells how he feels."),
    (("Good morning", "Good morning!", "Morning!"), ("Good morning! How can I help?",), "The user greets me."),
    (("Good morning to you", "good morning", "Morning", "Good morning, how are you?"), ("Good morning! How can I help?",), "The user greets me."),
    (("Good afternoon", "Good afternoon!", "good afternoon"), ("Good afternoon! How can I help?",), "The user greets me."),
    (("Good evening", "good evening", "Good evening!",), ("Good evening! How can I help?",), "The user greets me."),
    (("Thanks", "Thank you", "Thanks!", "Thank you very much.", "Great, thanks.", "Thanks a lot!", "thx", "Cool, thanks",
      "Thank you so much!"),
     ("You are welcome!", "You are welcome.", "Gladly!"), "The user thanks me."),
    (("Bye", "Goodbye", "See you", "Bye!", "Good night", "See you later", "That is all, bye."),
     ("Goodbye!", "Goodbye! See you soon."), "The user says goodbye."),
    (("How are you?", "How are you today?", "How is it going?", "How do you do?", "What's up?", "Are you well?"),
     ("I am fine, thank you. How can I help?", "I am well, thank you. What can I do for you?"), "The user asks how I am."),
    (("Great!", "Nice.", "Cool!", "Very good.", "OK", "Okay.", "Perfect.", "Well done!", "Good job!", "Wow!"),
     ("Thank you! Can I do anything else?", "Good! Can I help with anything else?"), "The user is content."),
    (("Help", "Help me", "Can you help me?", "I need help.", "I have a question."),
     ("Of course. What do you need?", "Yes. What would you like to know?"), "The user wants help."),
    (("Sorry", "I am sorry.", "My mistake."), ("No problem!", "That is all right."), "The user says sorry."),
    (("Test", "test", "Testing", "Is this on?", "Are you there?", "ping"),
     ("I am here. How can I help?",), "The user tests whether I am there."),
)  # fmt: skip
_WHO = (
    "Who are you?", "What are you?", "What is your name?", "Tell me about yourself.", "Introduce yourself.",
    "What's your name?", "Which model are you?", "What model are you?", "who are you", "Who made you?",
    "Are you a robot?", "Are you a human?", "Are you ChatGPT?", "Are you an AI?", "Please introduce yourself.",
    "what are you", "what is your name", "Are you ChatGPT?", "are you chatgpt", "are you a bot?", "are you human?", "who made you", "Who created you?", "Who built you?",
    "tell me about yourself", "Tell me who you are.", "Are you GPT-4?", "Are you Claude?", "are you an ai", "what model are you", "Are you real?", "Are you a person?",
    "What kind of model are you?", "How big are you?", "your name?", "And who are you?", "What should I call you?", "Who am I talking to?", "Do you have a name?",
)  # fmt: skip
_WHAT = (
    "What can you do?", "What are you able to do?", "How can you help me?", "What are you good at?",
    "What can I ask you?", "Tell me what you can do.", "What do you know?", "What are your abilities?",
    "How do I use you?", "what can you do", "what can you do?", "Can you help me with my homework?", "Can you help me with my {t}?", "Can you help me with {t}?",
    "Could you help me with my {t}?", "Will you help me with {t}?", "I need help with my {t}.", "Help me with my {t}.", "help me with {t}", "Can you do my {t}?",
    "What do you do?", "What is your purpose?", "How can you help?", "What are your skills?", "are you smart?",
)  # fmt: skip
_DATE = (
    "What is the date today?", "What day is it today?", "What's the date?", "Which date is it?",
    "Tell me the date.", "What is today's date?", "Today's date?", "What is the current date?",
)  # fmt: skip
_YEAR = (
    "What year is it?",
    "Which year is it?",
    "Tell me the current year.",
    "What is the current year?",
)


def talk(rng: Random) -> Example:
    """A greeting, thanks, a farewell."""
    asked, answers, why = pick(rng, _TALK)
    text = pick(rng, asked)
    if chance(rng, 0.1):
        text = text.rstrip("!.") + pick(rng, (" rose", ", my friend", " :)", "!!"))
    before = small_exchange(rng) if chance(rng, 0.3) else []
    thinking = Thinking(
        why, f"{why} I answer in a friendly way.", "No tool and no long answer is needed."
    )
    return answered(
        rng,
        "chat",
        [*frame(rng), *before, user(text)],
        thinking,
        pick(rng, answers),
        key=f"talk {text}",
    )


def identity(rng: Random) -> Example:
    """Who the model is, or who the system message says it is."""
    text = ask(rng, pick(rng, _WHO))
    if chance(rng, 0.35):
        name = capital(invented(rng)) if chance(rng, 0.5) else pick(rng, FIRST_NAMES)
        role = pick(rng, ("an assistant", "a helpful robot", "a teacher", "a guide", "a cook", "a travel agent",
                          "a support agent", "a librarian", "a shop assistant", "a coach"))  # fmt: skip
        form = pick(
            rng,
            (
                "You are {n}, {r}.",
                "Your name is {n}. You are {r}.",
                "You are {r} named {n}.",
                "You are {n}, {r}. Be brief.",
            ),
        )
        messages = [
            Message(role=pick(rng, ("system", "developer")), content=form.format(n=name, r=role)),
            user(text),
        ]
        final = f"I am {name}, {role}."
        thinking = Thinking(
            f"I am {name}.",
            f"The user asks who I am. The instructions say that I am {name}, {role}.",
            "I follow the instructions.",
        )
        return answered(
            rng, "chat", messages, thinking, final, key=f"{messages[0].content} {text}", answer=name
        )
    thinking = Thinking(
        "I am rose-nano.",
        "The user asks who I am. I am rose-nano, a small model.",
        "I come with Rose.",
    )
    return answered(
        rng,
        "chat",
        [*frame(rng), user(text)],
        thinking,
        IDENTITY,
        key=f"who {text}",
        answer="rose-nano",
    )


def abilities(rng: Random) -> Example:
    """What the model can do."""
    text = ask(
        rng,
        pick(rng, _WHAT).format(t=texts.thing(rng) if chance(rng, 0.3) else pick(rng, texts.NOUNS)),
    )
    thinking = Thinking(
        "I say what I can do.",
        "The user asks what I can do. I tell my skills in short.",
        "They are sums, lists, memory, tools and JSON.",
    )
    return answered(
        rng,
        "chat",
        [*frame(rng), user(text)],
        thinking,
        ABILITIES,
        key=f"what {text}",
        answer="calculate",
    )


def date(rng: Random) -> Example:
    """The current date, or that it was not given."""
    today = draw_date(rng)
    year = chance(rng, 0.2)
    text = ask(rng, pick(rng, _YEAR if year else _DATE))
    if today is None:
        thinking = Thinking(
            "No date was given.",
            "The user asks for the date. The system message gives no date.",
            "I must not guess.",
        )
        final = "I do not know the current date. It was not given to me."
        return answered(
            rng, "chat", [*frame(rng), user(text)], thinking, final, key=f"date {text}", date=None
        )
    answer = today[:4] if year else today
    final = f"It is {answer}." if year else f"Today is {answer}."
    thinking = Thinking(
        f"It is {answer}.",
        f"The user asks for the date. The system message says {today}.",
        f"So the answer is {answer}.",
    )
    return answered(
        rng,
        "chat",
        [*frame(rng), user(text)],
        thinking,
        final,
        key=f"date {text}",
        answer=answer,
        date=today,
    )


def _words(rng: Random) -> str:
    lists = (ANIMALS, FOODS, OBJECTS, COLOURS, CITIES, FIRST_NAMES)
    count = pick(rng, (1, 1, 2, 3, 4))
    words = [
        invented(rng) if chance(rng, 0.3) else pick(rng, pick(rng, lists)) for _ in range(count)
    ]
    if chance(rng, 0.3):
        return f"The {pick(rng, ADJECTIVES)} {pick(rng, ANIMALS)} likes {pick(rng, FOODS)}"
    return " ".join(words)


def repeat(rng: Random) -> Example:
    """Say X, spell X, count the letters of X, write X in capitals, turn X round."""
    x = rng.random()
    if x < 0.65:
        said = texts.any_text(rng) if chance(rng, 0.75) else _words(rng)
        form = pick(
            rng,
            (
                'Say "{}".',
                "Say {}",
                "Repeat: {}",
                'Repeat "{}".',
                "Repeat after me: {}",
                "Please say: {}",
                "Echo {}",
                "Write: {}",
                'Answer with "{}".',
                "Just say {}",
                "say {}",
                "say {}",
                "repeat {}",
                "Please repeat: {}",
                "Copy this: {}",
                "write {}",
                "Say exactly this: {}",
                "Print {}",
                "Can you say {}",
                "say '{}'",
            ),
        )
        final, why = said, f"I repeat: {said}"
    elif x < 0.83:
        said = invented(rng) if chance(rng, 0.4) else pick(rng, (*ANIMALS, *FOODS, *OBJECTS))
        form = pick(
            rng, ("Spell {}.", "How do you spell {}?", 'Spell the word "{}".', "Please spell {}.")
        )
        final = "-".join(said.upper())
        why = f"The letters are {final}."
    else:
        said = invented(rng) if chance(rng, 0.4) else pick(rng, (*ANIMALS, *FOODS, *OBJECTS))
        form = pick(
            rng,
            (
                "How many letters does {} have?",
                "How many letters are in {}?",
                "Count the letters of {}.",
            ),
        )
        spelled = ", ".join(f"{c} {i}" for i, c in enumerate(said, 1))
        final, why = (
            f"The word {said} has {len(said)} letters.",
            f"Count: {spelled}. That is {len(said)}.",
        )
    text = form.format(said)
    thinking = Thinking(
        capital(why), f"The user wants just this. {capital(why)}", "That is all that is asked."
    )
    return answered(rng, "chat", [*frame(rng), user(text)], thinking, final, key=text, answer=final)


_ENDINGS = (
    "Have a nice day!",
    "Bye!",
    "Meow!",
    "Arr!",
    "Over and out.",
    "Best wishes, Rose.",
    "Yours truly.",
    "Indeed.",
)
_STARTS = ("Captain,", "Dear user,", "My friend,", "Well,", "Beep!", "Ahoy!", "Sure!")


def instructed(rng: Random) -> Example:
    """An instruction of the developer changes the form of the answer."""
    while True:
        question, answer, expected, key = draw_fact(rng)
        if not is_heldout_key(key):
            break
    x = rng.random()
    if x < 0.35:
        ending = pick(rng, _ENDINGS) if chance(rng, 0.5) else capital(invented(rng)) + "!"
        rule = pick(
            rng,
            ('Always end with "{}"', 'End every answer with "{}"', 'Finish each answer with "{}"'),
        ).format(ending)
        final, must = f"{answer} {ending}", ending
    elif x < 0.65:
        start = pick(rng, _STARTS) if chance(rng, 0.5) else capital(invented(rng)) + "!"
        rule = pick(
            rng,
            (
                'Always start with "{}"',
                'Begin every answer with "{}"',
                'Start each answer with "{}"',
            ),
        ).format(start)
        final, must = f"{start} {answer}", start
    elif x < 0.85:
        rule = pick(
            rng,
            (
                "Answer in capital letters.",
                "Write everything in upper case.",
                "Use only capital letters.",
                "Always write in all caps.",
            ),
        )
        final, must = answer.upper(), expected.upper()
    else:
        rule = pick(
            rng,
            ("Answer in lower case.", "Write everything in lower case.", "Use only small letters."),
        )
        final, must = answer.lower(), expected.lower()
    rule = rule if rule.endswith((".", '"')) else f"{rule}."
    messages = [Message(role="developer", content=rule), user(ask(rng, question))]
    thinking = Thinking(answer, f"{answer} The instructions: {rule}", "I follow the instructions.")
    return answered(rng, "chat", messages, thinking, final, key=f"{rule} {question}", answer=must)


def yes_or_no(rng: Random) -> Example:
    """The developer wants nothing but yes or no."""
    a, b = whole(rng, 0, 99), whole(rng, 0, 99)
    b = b if a != b else b + 1
    true = a > b
    rule = pick(
        rng,
        (
            "Answer only yes or no.",
            "Answer only with yes or no.",
            "Reply with yes or no.",
            "Only say yes or no.",
        ),
    )
    question = pick(
        rng,
        ("Is {} larger than {}?", "Is {} more than {}?", "Is {} greater than {}?", "Is {} > {}?"),
    ).format(a, b)
    messages = [Message(role="developer", content=rule), user(question)]
    final = "Yes." if true else "No."
    thinking = Thinking(
        f"{max(a, b)} > {min(a, b)}.",
        f"Compare {a} and {b}. {max(a, b)} > {min(a, b)}. I may only say yes or no.",
        f"So the answer is {final.lower()}",
    )
    return answered(rng, "chat", messages, thinking, final, key=f"{rule} {question}", answer=final)


_OPEN = (
    "Who won the {t} prize last year?", "What is the population of {c}?", "Write a poem about {t}.", "Write a story about a {a}.",
    "Explain {t}.", "What do you think about {t}?", "Who is the president of {c}?", "What is the best {o} to buy?", "Tell me the news.",
    "What happened in {c} yesterday?", "Write a program that sorts a list.", "Write Python code for {t}.", "Tell me about {t}.",
    "How do I fix my {o}?", "What is the meaning of life?", "Should I buy a {o}?", "I have a headache. What should I take?",
    "Is it healthy to eat {f} every day?", "Give me legal advice about {t}.", "Who invented the {o}?", "When was {c} founded?",
    "How tall is {n}?", "Who is {n} {i}?", "What is a {i}?", "Where can I find a {i}?", "Translate {o} to {i}.",
    "What is the history of {c}?", "How does {t} work?", "Why is {t} important?", "Tell me a joke.", "Sing a song about {a}s.",
    "What will the weather be tomorrow?", "What is the weather in {c}?", "What time is it in {c}?", "Who will win the next election?",
    "Recommend a book about {t}.", "Which film should I watch?", "Write an essay on {t}.", "Draw a {a}.", "Who is the king of {i}?",
    "What is the capital of {i^}?", "What did {n} say about {t}?", "How much does a {o} cost in {c}?", "What is the stock price of {n}?",
    "Do you love me?", "What do you dream about?", "Can you drive a car?", "How many people live in {c}?", "Summarise the book {i^}.",
    "What is the price of gold?", "Plan my trip to {c}.", "How do I cook {f}?", "Give me a recipe for {f}.", "What is the square root of 1234567?",
    "Which {a} is the most clever?", "What is your favourite {o}?", "Write a letter to {n}.", "Who wrote the book about the {a} and the {o}?",
    "Why do {a}s like {f}?", "Prove the theorem of {i^}.", "What is {t}?", "Compare {c} and {t}.", "Is {n} a good person?",
)  # fmt: skip
REFUSALS = (
    "I do not know that. I am only a small model.", "Sorry, I do not know that.", "I am sorry, I cannot help with that. I am a small model.",
    "I do not know that. I can help with small sums, lists and tools.", "That is beyond what I know. I am sorry.",
    "Sorry, that is more than I can do. I am a very small model.",
)  # fmt: skip


def draw_open_question(rng: Random) -> str:
    """A question that the model cannot answer."""
    return pick(rng, _OPEN).replace("{i^}", capital(invented(rng))).format(
        t=pick(rng, TOPICS), c=pick(rng, CITIES), a=pick(rng, ANIMALS), o=pick(rng, OBJECTS), f=pick(rng, FOODS),
        n=pick(rng, FIRST_NAMES), i=invented(rng),
    )  # fmt: skip
