"""Tools of work and travel: calculation, money, data, files, journeys."""
# ruff: noqa: E501 (tables of phrases read best with a row a line)

from random import Random

from recipes.nano.corpus.build import capital, pick, whole
from recipes.nano.corpus.domains import domain, slot
from recipes.nano.corpus.values import (
    AMOUNT,
    CITY,
    CLOCK,
    COMPANY,
    CURRENCY,
    DATE,
    EMAIL,
    EXPRESSION,
    FILE,
    ID,
    LARGE,
    MEDIUM,
    NAME,
    NOTE,
    NUMBER_LIST,
    PERSON,
    PHRASE,
    SMALL,
    TITLE,
    WORD,
    enum,
    flag,
    identifier,
)  # fmt: skip
from recipes.nano.words import FIRST_NAMES, invented

OPERATION = enum(
    {
        "add": ("plus",),
        "subtract": ("minus",),
        "multiply": ("times", "multiplied by"),
        "divide": ("divided by",),
    }
)
LENGTH = enum({"km": ("kilometres", "km"), "miles": ("miles",), "meters": ("metres", "meters")})
MODE = enum(
    {
        "car": ("by car",),
        "bike": ("by bike", "by bicycle"),
        "walk": ("on foot",),
        "train": ("by train",),
        "bus": ("by bus",),
    }
)
SEAT = enum({"economy": ("economy",), "business": ("business",), "first": ("first",)})
ORDER = enum({"asc": ("ascending",), "desc": ("descending",)})
TABLE = enum(
    {t: (t,) for t in ("users", "orders", "products", "invoices", "customers", "payments")}
)
LEVEL = enum(
    {"low": ("low",), "medium": ("medium", "normal"), "high": ("high",), "critical": ("critical",)}
)


def _id(rng: Random) -> str:
    return identifier(rng)


def _money(rng: Random) -> float:
    return whole(rng, 100, 99999) / 100


def _clock(rng: Random) -> str:
    return f"{whole(rng, 0, 23):02d}:{whole(rng, 0, 59):02d}"


WORK = (
    domain(
        "calculate evaluate compute - run", "calculator expression calculate math math_expression eval_math",
        "Evaluate a mathematical expression.|A calculator|Computes the value of an expression",
        (slot("e", "expression formula input expr calculation", EXPRESSION, "The expression, e.g. 2 + 3|What to compute|"), slot("n", "precision digits decimals", SMALL, "Digits after the point|", " with {} decimals| to {} digits")),
        ("What is {e}{n}?", "Calculate {e}{n}.", "Use the calculator for {e}{n}.", "Compute {e}{n}.", "How much is {e}{n}?", "Evaluate {e}{n}."),
        results=(("result value answer", lambda r: whole(r, -999, 99999)),), finals=("{e} = {0}.", "The result is {0}."), clash="calculator",
    ),
    domain(
        "calculate do run apply -", "arithmetic operation calculator calculate_two binary_operation",
        "Calculate with two numbers.|Applies an operation to two numbers",
        (slot("a", "a x first left number1 first_number", AMOUNT, "First number|"), slot("o", "operation op operator action", OPERATION, "What to do|"), slot("b", "b y second right number2 second_number", AMOUNT, "Second number|")),
        ("What is {a} {o} {b}?", "Calculate {a} {o} {b}.", "How much is {a} {o} {b}?", "{a} {o} {b}", "I need {a} {o} {b}."),
        results=(("result value answer", lambda r: whole(r, -999, 99999)),), finals=("The result is {0}.", "{a} {o} {b} is {0}."), clash="calculator",
    ),
    domain(
        "add sum sum_up total", "numbers values list_of_numbers",
        "Add up a list of numbers.|Sums all numbers", (slot("l", "numbers values items list", NUMBER_LIST, "The numbers|"),),
        ("Add up {l}.", "What is the sum of {l}?", "Sum {l}.", "Total of {l}?", "Add the numbers {l}."), results=(("sum total result", lambda r: whole(r, 5, 3000)),), finals=("The sum is {0}.",), clash="calculator",
    ),
    domain(
        "compute get calculate", "average mean statistics mean_value", "Average of numbers.|Computes the mean of a list", (slot("l", "numbers values data samples", NUMBER_LIST, "The numbers|"),),
        ("What is the average of {l}?", "Average of {l}", "Find the mean of {l}.", "Compute the average of {l}."), results=(("average mean result", lambda r: whole(r, 10, 9999) / 10),), finals=("The average is {0}.",), clash="calculator",
    ),
    domain(
        "convert exchange get", "currency money exchange_rate currencies amount",
        "Convert an amount of money.|Currency conversion|Exchange money into another currency",
        (slot("a", "amount value sum", AMOUNT, "How much|"), slot("f", "from_currency source base from", CURRENCY, "Code of the source currency, e.g. USD|ISO code|"), slot("t", "to_currency target to quote", CURRENCY, "Code of the target currency|ISO code|")),
        ("Convert {a} {f} to {t}.", "How much is {a} {f} in {t}?", "What are {a} {f} in {t}?", "Change {a} {f} into {t}.", "{a} {f} in {t}"),
        results=(("converted result amount", _money), ("rate exchange_rate", lambda r: whole(r, 50, 200) / 100)), finals=("{a} {f} are {0} {t}.", "That is {0} {t}."),
    ),
    domain(
        "get fetch lookup check", "stock_price share_price quote stock ticker_price",
        "Get the price of a stock.|Returns the share price of a company",
        (slot("s", "symbol ticker stock", COMPANY, "Ticker symbol, e.g. AAPL|The ticker|"), slot("d", "date day", DATE, "Which day|", " on {}")),
        ("What is the stock price of {s}{d}?", "How much is a share of {s}{d}?", "Price of {s} stock{d}", "Get the quote of {s}{d}.", "How is the {s} stock doing{d}?"),
        bare="What is the stock price?|Get a stock price.",
        results=(("price value last", _money), ("currency", lambda r: pick(r, ("USD", "EUR")))), finals=("The price of {s} is {0} {1}.",),
    ),
    domain(
        "convert change", "units length distance_unit measurement",
        "Convert between units of length.|Unit conversion", (slot("a", "value amount number", AMOUNT, "The number|"), slot("f", "from_unit source from", LENGTH, "Unit of the number|"), slot("t", "to_unit target to", LENGTH, "Wanted unit|")),
        ("Convert {a} {f} to {t}.", "How many {t} are {a} {f}?", "What is {a} {f} in {t}?", "{a} {f} in {t}"), results=(("result value converted", lambda r: whole(r, 10, 9999) / 10),), finals=("That is {0} {t}.", "{a} {f} are {0} {t}."),
    ),
    domain(
        "query search select get", "database db records rows table",
        "Query the database.|Reads rows of a table|Gets records",
        (
            slot("t", "table collection source", TABLE, "The table|"),
            slot("n", "limit max_rows count", MEDIUM, "Most rows to return|", ", at most {} rows| with limit {}"),
            slot("o", "order sort direction", ORDER, "Sort direction|", " in {} order| sorted {}"),
        ),
        ("Show the rows of the table {t}{o}{n}.", "Get all {t} from the database{o}{n}.", "Query {t}{o}{n}.", "Select from {t}{o}{n}.", "List the {t} in the database{o}{n}."),
        results=(("rows records count", lambda r: whole(r, 0, 900)),), finals=("The number of rows is {0}.",), clash="search",
    ),
    domain(
        "search query find", "knowledge_base documents docs wiki files_by_text",
        "Search the knowledge base.|Finds documents", (slot("q", "query question text search", PHRASE, "What to look for|"), slot("n", "num_results top_k limit", SMALL, "How many results|", ", {} results"),
        slot("d", "domain section filter tag", NAME, "Where to search|", " in {}")),
        ("Search the documents{d} for {q}{n}.", "Find documents about {q}{d}{n}.", "What do our docs{d} say about {q}{n}?", "Look in the knowledge base{d} for {q}{n}."),
        results=(("documents titles results", lambda r: [f"{capital(invented(r))} {pick(r, ('guide', 'manual', 'notes'))}" for _ in range(whole(r, 1, 3))]),), finals=("I found these documents: {0}.",), clash="search",
    ),
    domain(
        "run execute", "sql sql_query query database_query", "Run an SQL query.|Executes SQL", (slot("q", "query sql statement", enum({f"SELECT * FROM {t}": (f"SELECT * FROM {t}",) for t in ("users", "orders", "items", "logs")}), "The SQL|"),),
        ("Run {q}.", "Execute the query {q}.", "Please run this SQL: {q}"), results=(("row_count rows", lambda r: whole(r, 0, 900)),), finals=("The query gave {0} rows.",), clash="search",
    ),
    domain(
        "search find book get lookup", "flights flight flight_offers plane_tickets",
        "Search for flights.|Finds flights between two cities",
        (
            slot("f", "origin from departure from_city departure_city", CITY, "City of departure|"),
            slot("t", "destination to arrival to_city", CITY, "City of arrival|"),
            slot("d", "date departure_date day", DATE, "Day of travel|", " on {}| for {}"),
            slot("n", "passengers travellers seats adults", SMALL, "Number of passengers|", " for {} people| for {} passengers"),
            slot("s", "cabin seat_class class_of_travel", SEAT, "Class|", " in {} class"),
        ),
        ("Find flights from {f} to {t}{d}{n}{s}.", "I want to fly from {f} to {t}{d}{n}{s}.", "Flights from {f} to {t}{d}{n}{s}", "Get me a flight to {t} from {f}{d}{n}{s}.", "Search a plane from {f} to {t}{d}{n}{s}."),
        results=(("flight flight_number number", lambda r: f"{pick(r, 'ABKLU')}{pick(r, 'AFHSX')}{whole(r, 100, 999)}"), ("price fare", lambda r: whole(r, 40, 1500)), ("departure departs", _clock)),
        finals=("Flight {0} costs {1}. It leaves at {2}.", "I found flight {0} for {1}."), clash="travel",
    ),
    domain(
        "find search book get", "hotel hotels hotel_room accommodation",
        "Find a hotel.|Books a room in a city",
        (
            slot("c", "city location destination", CITY, "The city|"),
            slot("n", "nights number_of_nights stay", SMALL, "Number of nights|", " for {} nights"),
            slot("d", "check_in date arrival_date", DATE, "Day of arrival|", " from {}"),
            slot("b", "breakfast with_breakfast", flag((" with breakfast", ", breakfast included"), (" without breakfast",)), "Breakfast included|", "{}"),
        ),
        ("Find a hotel in {c}{d}{n}{b}.", "I need a room in {c}{d}{n}{b}.", "Hotels in {c}{d}{n}{b}", "Book a hotel in {c}{d}{n}{b}.", "Where can I sleep in {c}{d}{n}{b}?"),
        bare="Find a hotel.|I need a hotel room.",
        results=(("hotel name", lambda r: pick(r, ("Hotel Luna", "Grand Plaza", "Sea View", "The Crown"))), ("price_per_night price", lambda r: whole(r, 30, 400))), finals=("I found {0} for {1} per night.",), clash="travel",
    ),
    domain(
        "get find compute calculate", "distance route directions travel_time",
        "Distance between two places.|Finds the way from one place to another",
        (slot("f", "origin from start from_place", CITY, "Start|"), slot("t", "destination to end to_place", CITY, "Goal|"), slot("m", "mode transport vehicle", MODE, "Means of transport|", " {}"), slot("u", "unit units", LENGTH, "Unit of length|", " in {}")),
        ("How far is it from {f} to {t}{m}{u}?", "Distance from {f} to {t}{m}{u}", "What is the way from {f} to {t}{m}?", "How long is the trip from {f} to {t}{m}?", "How do I get from {f} to {t}{m}?"),
        results=(("distance length", lambda r: whole(r, 5, 3000)), ("hours duration", lambda r: whole(r, 1, 40))), finals=("The distance is {0} and it takes {1} hours.", "It is {0} from {f} to {t}."), clash="route",
    ),
    domain(
        "get current what", "time time_in_city local_time timezone_time clock",
        "Get the time in a city.|Current time of a place", (slot("c", "city location place timezone", CITY, "The city|"), slot("h", "use_24h twenty_four_hours", flag((" in 24 hour format",), (" in 12 hour format",)), "24 hour format|", "{}")),
        ("What time is it in {c}{h}?", "Time in {c}{h}", "Tell me the time in {c}{h}.", "How late is it in {c}?", "What's the local time in {c}{h}?"), results=(("time local_time", _clock),), finals=("It is {0} in {c}.", "The time in {c} is {0}."),
    ),
    domain(
        "get lookup find", "population country_info city_info city_population", "Facts on a city.|Population of a place", (slot("c", "city place name", CITY, "The city|"),),
        ("How many people live in {c}?", "What is the population of {c}?", "Population of {c}", "How big is {c}?"), results=(("population inhabitants", lambda r: whole(r, 1000, 999999)),), finals=("About {0} people live in {c}.", "{c} has {0} people."),
    ),
    domain(
        "read open get show", "file file_content document text_file", "Read a file.|Returns the text of a file", (slot("f", "path file filename file_path", FILE, "Path of the file|"), slot("n", "max_lines lines limit", MEDIUM, "Most lines to read|", ", only {} lines|, first {} lines")),
        ("Read the file {f}{n}.", "What is in {f}?", "Show me {f}{n}.", "Open {f}{n}.", "Print {f}{n}."), bare="Read a file.|Open a file, please.",
        results=(("content text", lambda r: pick(r, ("hello world", "buy milk", "all is well", "the end"))),), finals=('The file says: "{0}".',), clash="files",
    ),
    domain(
        "delete remove erase", "file document path", "Delete a file.|Removes a file for ever", (slot("f", "path file filename name", FILE, "Which file|"), slot("y", "force confirm permanent", flag((" without asking", " for ever")), "Do not ask|", "{}")),
        ("Delete the file {f}{y}.", "Remove {f}{y}.", "Erase {f}{y}."), bare="Delete a file.", results=(("deleted success", lambda r: True),), finals=("I deleted {f}.",), clash="files",
    ),
    domain(
        "list show get", "files directory folder directory_contents", "List files in a folder.", (slot("f", "path folder directory", enum({p: (p,) for p in ("docs", "tmp", "home", "/var/log", "src", "photos")}), "The folder|"), slot("h", "show_hidden all hidden", flag((", with hidden files", " including hidden ones")), "Hidden files too|", "{}")),
        ("List the files in {f}{h}.", "What is in the folder {f}{h}?", "Show the folder {f}{h}.", "Which files are in {f}{h}?"), results=(("files names", lambda r: [f"{invented(r)}.txt" for _ in range(whole(r, 1, 3))]),), finals=("The folder holds {0}.",), clash="files",
    ),
    domain(
        "create add register new", "user account customer member", "Create a user.|Registers a new account",
        (slot("n", "name username full_name", PERSON, "Name of the user|"), slot("e", "email mail email_address", EMAIL, "Address|", " with the email {}| with {}"), slot("a", "age years", MEDIUM, "Age in years|", ", age {}"), slot("z", "is_admin admin", flag((" as an admin", " with admin rights"), (" without admin rights",)), "Is an admin|", "{}")),
        ("Create a user {n}{e}{a}{z}.", "Add the user {n}{e}{a}{z}.", "Register {n}{e}{a}{z}.", "Make an account for {n}{e}{a}{z}."), bare="Create a user.|Add a new user.",
        results=(("user_id id", _id),), finals=("I created the user {n}. The id is {0}.",), clash="users",
    ),
    domain(
        "get find lookup fetch", "user user_by_name contact customer person_details", "Find a user.|Looks a person up", (slot("n", "name user username query", PERSON, "Who|"),),
        ("Find the user {n}.", "Look up {n}.", "Get the details of {n}.", "Show me the contact {n}.", "What is the email of {n}?"), bare="Find a user.|Look up a contact.",
        results=(("email mail", lambda r: f"{pick(r, FIRST_NAMES).lower()}@mail.com"), ("user_id id", _id)), finals=("The email of {n} is {0}.", "{n} has the id {1} and the email {0}."), clash="users",
    ),
    domain(
        "create open file new submit", "ticket issue bug_report support_ticket", "Open a support ticket.|Reports a problem",
        (slot("m", "title summary subject problem", NOTE, "What is wrong|"), slot("s", "severity priority level", LEVEL, "How bad it is|", " with {} severity| with {} priority"), slot("p", "assignee assigned_to owner", PERSON, "Who takes it|", " for {}| assigned to {}")),
        ('Open a ticket "{m}"{s}{p}.', 'Create an issue "{m}"{s}{p}.', 'File a ticket "{m}"{s}{p}.', 'Report the problem "{m}"{s}{p}.'), bare="Open a ticket.|Create an issue.",
        results=(("ticket_id id key", _id), ("status state", lambda r: "open")), finals=("I opened the ticket {0}.", "The ticket {0} is {1}."), clash="ticket",
    ),
    domain(
        "buy book order get", "tickets concert_tickets event_tickets cinema_tickets", "Buy tickets.|Tickets for an event", (slot("m", "event show title", TITLE, "The event|"), slot("n", "quantity count seats number", SMALL, "How many|"), slot("d", "date day", DATE, "Day|", " on {}")),
        ('Buy {n} tickets for "{m}"{d}.', "I need {n} tickets for {m}{d}.", 'Get {n} tickets for "{m}"{d}.'), results=(("booking_id id order_id", _id), ("total price", _money)), finals=("You have the tickets. They cost {1}. The booking is {0}.",), clash="travel",
    ),
    domain(
        "define lookup get", "word definition dictionary meaning word_meaning", "Look up a word.|Gives the meaning of a word", (slot("w", "word term query", WORD, "The word|"),),
        ("What does {w} mean?", 'Define "{w}".', "Look up the word {w}.", "Meaning of {w}", "What is the definition of {w}?"), bare="Look up a word.", results=(("definition meaning text", lambda r: f"a kind of {pick(r, ('tool', 'plant', 'dance', 'stone'))}"),), finals=("The word {w} means {0}.",), clash="search",
    ),
    domain(
        "generate get roll random", "number random_number integer dice", "A random number.|Draws a number", (slot("a", "min low minimum lower", SMALL, "Lowest number|"), slot("b", "max high maximum upper", LARGE, "Highest number|")),
        ("Give me a random number between {a} and {b}.", "Pick a number from {a} to {b}.", "Random number from {a} to {b}", "Draw a number between {a} and {b}."), results=(("number value result", lambda r: whole(r, 1, 5000)),), finals=("The number is {0}.",),
    ),
    domain(
        "generate create make", "password secret random_password", "Make a password.", (slot("n", "length size characters", MEDIUM, "Number of characters|"), slot("s", "symbols with_symbols special", flag((" with symbols",), (" without symbols",)), "Use symbols|", "{}")),
        ("Make a password of {n} characters{s}.", "Generate a password with length {n}{s}.", "I need a password with {n} characters{s}."), results=(("password value", lambda r: invented(r, 4)),), finals=("Your password is {0}.",),
    ),
    domain(
        "pay send transfer", "money payment bank_transfer invoice_payment", "Send money.|Pays a person", (slot("p", "recipient to payee name", PERSON, "Who gets it|"), slot("a", "amount sum value", AMOUNT, "How much|"), slot("c", "currency unit", CURRENCY, "ISO code of the currency|", " {}"), slot("m", "note reference memo", NOTE, "A remark|", ' with the note "{}"')),
        ("Send {a}{c} to {p}{m}.", "Pay {a}{c} to {p}{m}.", "Transfer {a}{c} to {p}{m}."), bare="Pay 20 dollars.|Send money, please.", results=(("transaction_id id", _id), ("status", lambda r: pick(r, ("done", "pending")))), finals=("The payment to {p} is {1}. Its id is {0}.",),
    ),
    domain(
        "get check show", "balance account_balance", "Balance of the account.", (slot("i", "account_id account id", ID, "The account|"),), ("What is the balance of account {i}?", "How much money is on account {i}?", "Balance of {i}", "Show the balance of {i}."), bare="What is my balance?|Show the balance.",
        results=(("balance amount", _money), ("currency", lambda r: pick(r, ("USD", "EUR")))), finals=("The balance is {0} {1}.",),
    ),
    domain(
        "get next list", "trains train departures bus_departures", "Next trains of a station.", (slot("c", "station city stop from", CITY, "The station|"), slot("t", "after time from_time", CLOCK, "Not before this time|", " after {}")),
        ("When does the next train leave {c}{t}?", "Next trains from {c}{t}", "Show departures in {c}{t}.", "Trains from {c}{t}, please."), results=(("departure next time", _clock), ("platform track", lambda r: whole(r, 1, 20))), finals=("The next train leaves at {0} from platform {1}.",), clash="travel",
    ),
    domain(
        "log record track add", "workout exercise training_session run", "Record a workout.", (slot("k", "activity kind type_of_sport sport", enum({k: (k,) for k in ("running", "swimming", "cycling", "rowing", "yoga")}), "The sport|"), slot("n", "minutes duration length", MEDIUM, "How long in minutes|"), slot("d", "date day", DATE, "Day|", " on {}")),
        ("I did {n} minutes of {k}{d}.", "Log {n} minutes of {k}{d}.", "Record {k} for {n} minutes{d}."), results=(("calories burned", lambda r: whole(r, 50, 900)),), finals=("Well done! You burned {0} calories.",),
    ),
    domain(
        "get list show", "time_off vacation_days holidays", "Free days of an employee.", (slot("p", "employee person name", PERSON, "The employee|"), slot("y", "year", MEDIUM, "The year|", " in year {}")),
        ("How many free days does {p} have?", "Show the vacation days of {p}.", "When is {p} on holiday?"), results=(("days_left days remaining", lambda r: whole(r, 0, 30)),), finals=("{p} has {0} days left.",),
    ),
    domain(
        "get lookup find", "horoscope sign_forecast", "Get today's horoscope for a sign.|Horoscope of a star sign", (slot("s", "sign star_sign zodiac", enum({z: (z,) for z in ("Aquarius", "Leo", "Virgo", "Libra", "Pisces", "Aries", "Taurus", "Gemini")}), "An astrological sign like Leo|The sign|"),),
        ("What is my horoscope? I am {s}.", "Horoscope for {s}", "Tell me the horoscope of {s}."), bare="What is my horoscope?", results=(("horoscope text", lambda r: pick(r, ("You will find a friend.", "A good day for rest.", "Look for new ways."))),), finals=("{0}", "Your horoscope: {0}"),
    ),
)  # fmt: skip
