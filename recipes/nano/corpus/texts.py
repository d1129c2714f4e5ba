"""Free text of a wide vocabulary: what users quote, search for, send and ask about."""
# ruff: noqa: E501, SIM905 (word lists are kept as text)

from random import Random

from recipes.nano.corpus.build import capital, chance, join_and, pick, whole
from recipes.nano.words import (
    ADJECTIVES,
    ANIMALS,
    CITIES,
    COMPANIES,
    COUNTRIES,
    DAYS,
    FIRST_NAMES,
    FOODS,
    HOBBIES,
    JOBS,
    LANGUAGES,
    LAST_NAMES,
    MONTHS,
    OBJECTS,
    PLACES,
    TOPICS,
    invented,
)  # fmt: skip

NOUNS = tuple(
    """account advice agreement airport algorithm answer argument army article atom audience autumn award bacteria
    battle beach behaviour belief biology bonus border bottle brain branch breakfast bridge budget building bus button
    calculus camera campaign cancer capital carbon castle cathedral century certificate chemistry church circuit citizen
    client climate cloud coach code colleague college comet community company computer concert contract country course
    court crisis crystal culture customer database deadline debate decision delivery democracy desert design detail
    diagram dictionary dinosaur discount disease district doctor document dragon dream earthquake economy editor
    education election electricity element emotion empire energy engine equation error essay event evidence evolution
    exam exercise experiment factory failure family fashion festival fever film finance fire flood flower forest formula
    fraction freedom fuel function future galaxy game gas gene genetics geometry ghost glacier government grammar graph
    gravity guide habit haiku harbour health heart hero history holiday homework hospital hotel hurricane hypothesis idea
    illness income industry infection inflation information insurance interest internet interview invention invoice
    island journey judge justice kernel kingdom knowledge laboratory language laser law lawyer leader lecture lesson
    library licence light limerick literature logic machine magazine magnet manager market marriage mathematics meaning
    medicine meeting memory message metal method microscope mind mineral minister mirror molecule moment money monitor
    moon morning mountain movie museum music mystery nation nature network neuron newspaper night noise novel number
    ocean office opera opinion orbit order orchestra organ oxygen package painting palace parcel parliament party
    password patient pattern peace philosophy photosynthesis physics picture planet plant plastic platform poem poetry
    policy politics pollution population portrait power president pressure price printer prison problem process product
    professor profit program project proof protein protocol psychology question radio railway rain receipt recession
    recipe refund relativity religion report republic rhyme river robot rocket salary sample satellite schedule school
    science screen script sculpture season server shadow shop signal sky sleep snow society software soil solution sonnet
    sound space speech spring star station statistics steam storm strategy street strike student summer sun supplier
    surgery sunset survey system tax teacher technology telescope temperature theatre theory therapy thunder tide tooth
    tourism tower trade tradition traffic train treaty triangle tunnel union universe university vaccine valley variable
    vector victory village virus vitamin volcano voyage war water wave wealth weather website wedding wheel wind winter
    wisdom workshop world year""".split()
)
PROPER = tuple(
    """NVIDIA OpenAI iPhone YouTube GitHub LinkedIn WhatsApp PostgreSQL JavaScript Python Linux macOS NASA CERN UNESCO
    BMW PyTorch CUDA GPT-4 ChatGPT Wikipedia Shakespeare Mozart Einstein Newton Napoleon Cleopatra Darwin Picasso
    Beethoven Aristotle Titanic Everest Amazon Sahara Olympics Eurovision Bitcoin Ethereum Tesla SpaceX Star-Wars Mars
    Jupiter Saturn Pluto Antarctica Europe Asia Africa COVID-19 WiFi HTML SQL JSON API""".split()
)
VERBS = tuple(
    """accept add ask begin bring build buy call cancel carry catch change check choose clean close collect cook copy
    count cover cut deliver discuss draw drive drop eat explain feed fetch fill find finish fix follow forget give grow
    hide hold invite keep learn leave lend lift love make measure meet mix move need open order paint pay plan play print
    promise pull push read remember repair return send share show sign sing start stop study swim take teach test throw
    try turn use visit wait walk wash watch wear write""".split()
)
_ADJECTIVES = (*ADJECTIVES, *"""latest best cheapest ancient famous strange secret annual final hidden rare digital
    electric global human medical monthly musical national natural nuclear political private public quantum royal
    scientific social solar typical urgent useful vegan vintage weekly""".split())  # fmt: skip
_LISTS = (NOUNS, NOUNS, NOUNS, VERBS, _ADJECTIVES, OBJECTS, ANIMALS, FOODS, CITIES, FIRST_NAMES, LAST_NAMES,
          PROPER, PLACES, JOBS, HOBBIES, COUNTRIES, LANGUAGES, MONTHS)  # fmt: skip
_MARKS = "abcdefghijklmnopqrstuvwxyz"


def hour(rng: Random) -> str:
    """A time as people write it: 3pm, 10:30, noon."""
    x = rng.random()
    if x < 0.45:
        return f"{whole(rng, 1, 12)}{pick(rng, ('pm', 'am', ' pm', ' am'))}"
    if x < 0.9:
        return f"{whole(rng, 0, 23)}:{pick(rng, ('00', '15', '30', '45', '10'))}"
    return pick(rng, ("noon", "midnight", "half past two", "six o'clock"))


def gibberish(rng: Random) -> str:
    """Letters as from a cat on the keyboard."""
    rows = ("asdfghjkl", "qwertyuiop", "zxcvbnm")
    x = rng.random()
    if x < 0.4:
        row = pick(rng, rows)
        start = whole(rng, 0, 3)
        return row[start : start + whole(rng, 3, 6)] * pick(rng, (1, 1, 1, 2))
    if x < 0.8:
        return "".join(pick(rng, _MARKS) for _ in range(whole(rng, 3, 10)))
    return pick(rng, ("???", "...", "lkj lkj", "aaaaaa", "123abc", "blah blah", "xx", "!!", "hmmm"))


def token(rng: Random) -> str:
    """One word of no list: invented, mixed in case, a code, an address, a number."""
    x = rng.random()
    word = invented(rng, pick(rng, (1, 2, 2, 3)))
    if x < 0.35:
        return word
    if x < 0.5:
        return capital(word)
    if x < 0.56:
        return word.upper()
    if x < 0.62:
        return f"{word}{capital(invented(rng, 1))}"
    if x < 0.68:
        return f"{pick(rng, FIRST_NAMES).lower()}@{pick(rng, ('example', 'mail', word))}.{pick(rng, ('com', 'org', 'net'))}"
    if x < 0.74:
        return f"{pick(rng, ('https://', 'www.', ''))}{word}.{pick(rng, ('com', 'org', 'io'))}{pick(rng, ('', '', f'/{pick(rng, NOUNS)}'))}"
    if x < 0.84:
        return f"{pick(rng, _MARKS).upper()}{pick(rng, ('', '-'))}{whole(rng, 1, 9999)}"
    if x < 0.9:
        return hour(rng)
    if x < 0.95:
        return "".join(
            pick(rng, _MARKS + _MARKS.upper() + "0123456789") for _ in range(whole(rng, 3, 8))
        )
    return pick(
        rng,
        (
            str(whole(rng, 0, 99999)),
            f"{whole(rng, 1, 99)}.{whole(rng, 1, 99)}",
            f"{whole(rng, 1, 99)}%",
            f"${whole(rng, 1, 999)}",
        ),
    )


def word(rng: Random) -> str:
    """A word from any list, or of none."""
    return token(rng) if chance(rng, 0.2) else pick(rng, pick(rng, _LISTS))


def words(rng: Random, low: int, high: int) -> str:
    """Words without grammar."""
    return " ".join(word(rng) for _ in range(whole(rng, low, high)))


def thing(rng: Random) -> str:
    """What one may ask about or search for: a noun phrase."""
    x = rng.random()
    if x < 0.2:
        return pick(rng, TOPICS)
    if x < 0.34:
        return f"{pick(rng, _ADJECTIVES)} {pick(rng, NOUNS)}{pick(rng, ('s', ''))}"
    if x < 0.46:
        return f"the {pick(rng, NOUNS)} of {pick(rng, (pick(rng, NOUNS), pick(rng, COUNTRIES), pick(rng, PROPER)))}"
    if x < 0.58:
        return pick(rng, PROPER)
    if x < 0.7:
        return pick(rng, NOUNS)
    if x < 0.76:
        return f"{pick(rng, NOUNS)} and {pick(rng, NOUNS)}"
    if x < 0.86:
        return f"{pick(rng, NOUNS)} {pick(rng, ('in', 'from', 'near', 'for', 'without', 'with'))} {pick(rng, (pick(rng, CITIES), pick(rng, NOUNS), pick(rng, FOODS), capital(invented(rng))))}"
    return f"{invented(rng)} {pick(rng, NOUNS)}" if x < 0.94 else capital(invented(rng, 3))


def search_text(rng: Random) -> str:
    """A search as people type it: the latest news about X, how to V, best N in C."""
    form = pick(rng, (
        "{t}", "{t}", "{t}", "the latest news about {t}", "latest news about {t}", "how to {v} a {n}", "best {n} in {c}",
        "{p} {n}", "{p} {n} {y}", "cheap {o}s near {c}", "{n} {n2}", "reviews of {p}", "{x} {n}", "what is {t}",
        "history of {t}", "who invented the {n}", "{p} vs {p2}", "why {n} matters", "{f} recipes without {f2}",
        "facts about {t}", "price of {p} in {c}", "{w}", "{w}", "jobs in {c}", "{x}", "the {a} {n} of {y}",
    ))  # fmt: skip
    return form.format(
        t=thing(rng), v=pick(rng, VERBS), n=pick(rng, NOUNS), n2=pick(rng, NOUNS), c=pick(rng, CITIES),
        p=pick(rng, (*PROPER, *COMPANIES)), p2=pick(rng, PROPER), y=whole(rng, 1900, 2030), o=pick(rng, OBJECTS),
        x=token(rng), f=pick(rng, FOODS), f2=pick(rng, FOODS), w=words(rng, 2, 5), a=pick(rng, _ADJECTIVES),
    )  # fmt: skip


def clause(rng: Random) -> str:
    """What may follow `that`: a sentence without its capital and stop."""
    form = pick(rng, (
        "the {n} is moved to {h}", "the {n} is cancelled", "the {n} starts at {h}", "we {v} the {n} on {d}", "I will be {m} minutes late",
        "the {n} is on {d} at {h}", "{q} has to {v} the {o}", "the {o} is in the {l}", "I cannot come on {d}", "dinner is ready",
        "we need more {f}", "the {a} {n} is ready", "I like the {n}", "the {n} about {t} is due on {d}", "my flight lands at {h}",
        "we meet at {h} in the {l}", "the code is {x}", "I am at the {n}", "there is a {n} in {c}", "they {v} {f} for the {n}",
        "the price is {m} dollars", "please {v} the {n} before {h}", "{q} and {r} are in {c}", "it is raining in {c}",
        "the {n} has a {a} {n2}", "everything is fine", "the new address is {x}", "you can {v} it until {h}", "the {n} {n2} was {a}",
        "the {n} is delayed by {m} minutes", "we won the {n}", "{q} is sick today", "your {o} has arrived",
    ))  # fmt: skip
    return form.format(
        n=pick(rng, NOUNS), n2=pick(rng, NOUNS), h=hour(rng), v=pick(rng, VERBS), d=pick(rng, DAYS), m=whole(rng, 2, 99),
        q=pick(rng, FIRST_NAMES), r=pick(rng, FIRST_NAMES), o=pick(rng, OBJECTS), l=pick(rng, PLACES), f=pick(rng, FOODS),
        a=pick(rng, _ADJECTIVES), t=thing(rng), x=token(rng), c=pick(rng, CITIES),
    )  # fmt: skip


def errand(rng: Random) -> str:
    """What may follow `to`: something to be done."""
    form = pick(rng, ("{v} the {n}", "{v} the {o}", "{v} {q}", "buy {f} and {g}", "{v} a {a} {n}", "{v} the {n} for {q}",
                      "call {q} about the {n}", "{v} {x}", "{v} the {n} at {h}", "pay the {n}", "go to the {n}"))  # fmt: skip
    return form.format(
        v=pick(rng, VERBS), n=pick(rng, NOUNS), o=pick(rng, OBJECTS), q=pick(rng, FIRST_NAMES), f=pick(rng, FOODS),
        g=pick(rng, FOODS), a=pick(rng, _ADJECTIVES), x=token(rng), h=hour(rng),
    )  # fmt: skip


def any_text(rng: Random) -> str:
    """A text to be copied letter by letter."""
    x = rng.random()
    if x < 0.3:
        return words(rng, 1, 6)
    if x < 0.4:
        return token(rng)
    if x < 0.6:
        return capital(clause(rng)) + pick(rng, ("", "", "!", "?"))
    if x < 0.7:
        return pick(
            rng,
            (
                "hello world",
                "Hello, World!",
                "hello",
                "good morning",
                "thank you",
                "I love you",
                "yes",
                "foo bar",
                "ABC",
                "hi there",
            ),
        ) + pick(rng, ("", "", "", f" {word(rng)}", f", {pick(rng, FIRST_NAMES)}"))
    if x < 0.8:
        return join_and([word(rng) for _ in range(whole(rng, 2, 5))])
    return search_text(rng) if x < 0.9 else errand(rng)
