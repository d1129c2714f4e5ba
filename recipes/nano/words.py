"""Word lists of the corpus, written by hand."""
# ruff: noqa: E501, RUF005, SIM905 (word lists are kept as text)

from random import Random

FIRST_NAMES = tuple(
    """Ada Adam Alan Alice Amir Amy Ana Andre Anna Anton Arthur Asha Ben Bella Bob Boris Bruno Carl
    Carla Cara Chloe Chris Clara Claire Cleo Dana Daniel David Dora Dylan Edith Elena Eli Ella Elsa
    Emil Emily Emma Eric Erik Esther Eva Evan Farah Felix Finn Fiona Frank Freya George Gina Grace
    Greta Gus Hana Hannah Harry Hassan Helen Henry Hugo Ian Ida Igor Ines Ingrid Irene Iris Isaac
    Ivan Ivy Jack Jacob James Jane Jasper Jim Joan Joe John Jonas Josef Judy Julia Julian June Kai
    Karen Karl Kate Kenji Kim Kira Kofi Lara Laura Lea Leo Lena Liam Lily Linda Lisa Lola Louis
    Lucas Lucy Luis Luna Maja Marco Maria Mark Marta Martin Mary Max Maya Mei Mia Mike Milo Mina
    Mira Mona Nadia Naomi Nia Nick Nina Noah Nora Olga Oliver Omar Oscar Otto Pablo Paul Pedro Peter
    Petra Pia Priya Quinn Rachel Rafael Raj Ravi Rita Robert Rosa Rosie Ruth Sam Sana Sara Sasha
    Simon Sofia Stella Steve Susan Sven Tara Ted Tess Theo Thomas Tim Tina Tobias Tom Uma Ursula Vera
    Victor Viktor Walter Wendy Will Yara Yuki Yusuf Zara Zoe""".split()
)
LAST_NAMES = tuple(
    """Adams Baker Becker Bell Berg Black Brown Carter Clark Cook Cruz Diaz Fischer Ford Garcia Gray
    Green Hall Hansen Hill Jones Khan Kim King Klein Lee Lopez Martin Meyer Miller Moore Novak Olsen
    Park Patel Reed Rossi Sato Scott Silva Singh Smith Stone Taylor Weber West White Wilson Wood
    Young""".split()
)
CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
    "Portugal": "Lisbon", "England": "London", "Ireland": "Dublin", "Scotland": "Edinburgh",
    "Norway": "Oslo", "Sweden": "Stockholm", "Denmark": "Copenhagen", "Finland": "Helsinki",
    "Iceland": "Reykjavik", "Poland": "Warsaw", "Austria": "Vienna", "Hungary": "Budapest",
    "Greece": "Athens", "Turkey": "Ankara", "Russia": "Moscow", "Ukraine": "Kyiv",
    "Romania": "Bucharest", "Bulgaria": "Sofia", "Croatia": "Zagreb", "Serbia": "Belgrade",
    "Belgium": "Brussels", "Switzerland": "Bern", "Japan": "Tokyo", "China": "Beijing",
    "South Korea": "Seoul", "India": "New Delhi", "Thailand": "Bangkok", "Vietnam": "Hanoi",
    "Indonesia": "Jakarta", "Nepal": "Kathmandu", "Iran": "Tehran", "Iraq": "Baghdad",
    "Egypt": "Cairo", "Kenya": "Nairobi", "Morocco": "Rabat", "Ethiopia": "Addis Ababa",
    "Ghana": "Accra", "Senegal": "Dakar", "Tunisia": "Tunis", "Algeria": "Algiers",
    "Canada": "Ottawa", "Mexico": "Mexico City", "Cuba": "Havana", "Brazil": "Brasilia",
    "Argentina": "Buenos Aires", "Chile": "Santiago", "Peru": "Lima", "Colombia": "Bogota",
    "Ecuador": "Quito", "Uruguay": "Montevideo", "Australia": "Canberra",
    "New Zealand": "Wellington", "the United States": "Washington", "the Netherlands": "Amsterdam",
    "the Philippines": "Manila", "Czechia": "Prague", "Slovakia": "Bratislava", "Latvia": "Riga",
    "Estonia": "Tallinn", "Lithuania": "Vilnius", "Mongolia": "Ulaanbaatar",
}  # fmt: skip
OTHER_CITIES = tuple(
    """Munich Hamburg Cologne Zurich Geneva Milan Naples Turin Venice Florence Barcelona Seville
    Valencia Porto Lyon Nice Marseille Manchester Liverpool Glasgow Bristol Oxford Cambridge Leeds
    York Bergen Gothenburg Krakow Gdansk Istanbul Izmir Dubai Doha Mumbai Delhi Chennai Bangalore
    Kolkata Singapore Sydney Melbourne Perth Brisbane Auckland Toronto Montreal Vancouver Calgary
    Boston Chicago Dallas Denver Houston Miami Seattle Portland Phoenix Atlanta Detroit Austin
    Kyoto Osaka Sapporo Nagoya Shanghai Shenzhen Busan Lagos Cairo Casablanca Durban Luxor""".split()
) + (
    "New York", "Los Angeles", "San Francisco", "San Diego", "Las Vegas", "Cape Town",
    "Hong Kong", "Rio de Janeiro", "Sao Paulo", "Tel Aviv", "Ho Chi Minh City", "Salt Lake City",
    "New Orleans", "Kuala Lumpur",
)  # fmt: skip
CITIES = tuple(dict.fromkeys((*CAPITALS.values(), *OTHER_CITIES)))
COUNTRIES = tuple(CAPITALS)
FOODS = tuple(
    """pizza pasta rice soup salad bread cheese sushi curry tacos pancakes noodles chocolate honey
    apples bananas grapes cherries mangoes carrots potatoes tomatoes onions mushrooms beans lentils
    eggs fish chicken beef yogurt butter cake cookies pie waffles olives dumplings ramen lasagna
    burgers popcorn peanuts strawberries oranges lemons peaches pears plums spinach""".split()
)
GROCERIES = tuple(
    """milk eggs bread butter rice flour sugar salt coffee tea apples bananas oranges lemons cheese
    pasta beans onions carrots potatoes tomatoes garlic oil honey juice soap candles batteries
    paper towels cereal nuts yogurt pepper corn spinach""".split()
)
ANIMALS = tuple(
    """dog cat horse cow sheep goat pig rabbit mouse lion tiger bear wolf fox deer elephant giraffe
    zebra monkey camel owl eagle duck goose hen parrot penguin frog snake turtle shark whale dolphin
    otter beaver hedgehog squirrel bat hamster donkey""".split()
)
PET_NAMES = tuple(
    """Rex Bella Max Luna Rocky Coco Milo Daisy Buddy Molly Oscar Ruby Toby Biscuit Pepper Ginger
    Shadow Simba Nala Mochi Pixel Waffles Pickle Olive Hazel Bruno Ziggy Tiger Snowy Smokey Lucky
    Teddy Poppy Misty Socks Noodle""".split()
)
COLOURS = tuple(
    """red blue green yellow orange purple pink brown black white grey silver gold turquoise
    violet""".split()
)
OBJECTS = tuple(
    """book pen lamp chair table phone laptop camera watch clock bottle cup plate knife spoon bag
    backpack umbrella hat coat shirt shoe sock ring key door window mirror blanket pillow bicycle
    car boat kite ball guitar piano drum violin hammer ladder rope basket box candle map ticket
    letter stamp coin brush""".split()
)
COUNTED = tuple(
    """apples books pens coins marbles stickers cards cookies shells stamps balls eggs oranges
    flowers candles pencils toys cups plates tickets keys boxes stones buttons chairs""".split()
)
HOBBIES = tuple(
    """chess swimming painting running cooking reading gardening dancing singing hiking cycling
    fishing skiing tennis football climbing knitting sailing photography yoga drawing baking surfing
    pottery boxing""".split()
)
JOBS = tuple(
    """teacher nurse doctor baker farmer pilot lawyer engineer painter writer driver cook plumber
    librarian dentist carpenter electrician gardener musician chemist designer translator tailor
    actor waiter""".split()
)
INSTRUMENTS = tuple("guitar piano violin drums flute cello trumpet harp saxophone banjo".split())
MONTHS = tuple(
    """January February March April May June July August September October November
    December""".split()
)
DAYS = tuple("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split())
PLACES = tuple(
    """kitchen garden garage attic cellar office bedroom hallway drawer cupboard car bag
    bathroom shed library""".split()
)
LANGUAGES = tuple(
    """English French German Spanish Italian Portuguese Dutch Swedish Polish Greek Turkish Arabic
    Hindi Japanese Korean Chinese Russian Danish Finnish Czech""".split()
)
ADJECTIVES = tuple(
    """red blue green small large big old new cheap fast slow quiet warm cold soft heavy light long
    short round wooden modern simple fresh sweet dry bright dark young clean strong local easy
    wild happy""".split()
)
TOPICS = tuple(
    """solar energy|electric cars|climate change|machine learning|black holes|coffee beans|city parks|
    ancient Rome|garden design|jazz music|healthy food|space travel|ocean life|train travel|bird
    watching|film history|home repair|chess openings|wild horses|volcanoes|running shoes|language
    learning|water filters|mountain bikes|folk tales|cheap flights|board games|graphic cards|baby
    names|wind power|robot arms|green tea|art museums|stock markets|football results|deep
    learning|open source licences|quantum computers|sourdough bread|the Roman army""".replace(
        "\n", " "
    ).split("|")
)
TOPICS = tuple(" ".join(topic.split()) for topic in TOPICS)
COMPANIES = {
    "Apple": "AAPL", "Microsoft": "MSFT", "Amazon": "AMZN", "Tesla": "TSLA", "Google": "GOOGL",
    "Netflix": "NFLX", "Nvidia": "NVDA", "Intel": "INTC", "Disney": "DIS", "Nike": "NKE",
    "Boeing": "BA", "Ford": "F", "Pfizer": "PFE", "Visa": "V", "Oracle": "ORCL", "IBM": "IBM",
}  # fmt: skip
CURRENCIES = {
    "USD": ("dollars", "US dollars"), "EUR": ("euros",), "GBP": ("pounds", "British pounds"),
    "JPY": ("yen", "Japanese yen"), "CHF": ("Swiss francs",), "INR": ("rupees", "Indian rupees"),
    "SEK": ("Swedish kronor",), "CAD": ("Canadian dollars",), "AUD": ("Australian dollars",),
    "CNY": ("yuan",), "MXN": ("Mexican pesos",), "PLN": ("zloty",),
}  # fmt: skip
NUMBER_WORDS = tuple(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty""".split()
)
_TENS = tuple("twenty thirty forty fifty sixty seventy eighty ninety".split())

_STARTS = tuple("b br d dr f fl g gr h j k kl l m n p pl qu r s st t tr v w z sh".split())
_VOWELS = ("a", "e", "i", "o", "u", "a", "e", "o", "ai", "ee", "ou")
_ENDS = ("", "", "n", "r", "l", "x", "s", "m", "k", "t", "nd", "sh", "")


def invented(rng: Random, syllables: int = 2) -> str:
    """A word that does not exist, in lower case."""
    draw = rng.random
    return "".join(
        _STARTS[int(draw() * len(_STARTS))]
        + _VOWELS[int(draw() * len(_VOWELS))]
        + (_ENDS[int(draw() * len(_ENDS))] if last == syllables - 1 else "")
        for last in range(syllables)
    )


def number_words(value: int) -> str:
    """An integer from 0 to 999 in words."""
    if value <= 20:
        return NUMBER_WORDS[value]
    if value < 100:
        tens, ones = divmod(value, 10)
        return _TENS[tens - 2] + (f"-{NUMBER_WORDS[ones]}" if ones else "")
    hundreds, rest = divmod(value, 100)
    return f"{NUMBER_WORDS[hundreds]} hundred" + (f" and {number_words(rest)}" if rest else "")
