"""Tools of daily life: weather, calendar, home, music, shopping, notes."""
# ruff: noqa: E501 (tables of phrases read best with a row a line)

from random import Random

from recipes.nano.corpus.build import pick, whole
from recipes.nano.corpus.domains import domain, slot
from recipes.nano.corpus.values import (
    CITY,
    CLOCK,
    DATE,
    EMAIL,
    FOOD,
    ID,
    ITEMS,
    LANGUAGE,
    MEDIUM,
    NOTE,
    OBJECT,
    PEOPLE,
    PERSON,
    PHRASE,
    SMALL,
    TAGS,
    THING,
    TITLE,
    WEATHER,
    enum,
    flag,
    identifier,
    iso_date,
)  # fmt: skip
from recipes.nano.words import FOODS

UNIT = enum(
    {
        "celsius": ("celsius", "Celsius", "degrees Celsius"),
        "fahrenheit": ("fahrenheit", "Fahrenheit", "degrees Fahrenheit"),
    }
)
PRIORITY = enum(
    {"low": ("low", "low"), "medium": ("medium", "normal"), "high": ("high", "urgent", "very high")}
)
ROOM = enum(
    {
        r: (f"the {r.replace('_', ' ')}",)
        for r in ("kitchen", "bedroom", "bathroom", "living_room", "garage", "office")
    }
)
ON_OFF = enum({"on": ("on",), "off": ("off",)})
GENRE = enum({g: (g,) for g in ("rock", "jazz", "pop", "classical", "folk", "blues", "techno")})


def _id(rng: Random) -> str:
    return identifier(rng)


def _price(rng: Random) -> float:
    return whole(rng, 100, 99999) / 100


DAILY = (
    domain(
        "get fetch check lookup - current read", "weather current_weather weather_forecast forecast weather_report weather_info",
        "Get the current weather for a city.|Returns the weather of a place.|Weather forecast for a location|Tells the weather.",
        (
            slot("c", "city location place town city_name", CITY, "The city.|City name, e.g. Paris|Name of the place|The city and country, e.g. Oslo, Norway|"),
            slot("u", "unit units temperature_unit scale format", UNIT, "Unit of the temperature|The unit to use|", " in {}| in {}|, use {}"),
            slot("d", "date day when", DATE, "Day of the forecast|", " on {}|, for {}"),
        ),
        ("What is the weather in {c}{d}{u}?", "How is the weather in {c}{d}{u}?", "Weather in {c}{d}{u}", "What's the weather like in {c}{d}{u}?",
         "Is it cold in {c}{d}?", "Do I need an umbrella in {c}{d}?", "Tell me the weather for {c}{d}{u}.", "Will it rain in {c}{d}?",
         "Give me the forecast for {c}{d}{u}.", "How warm is it in {c}{d}{u}?", "What's the temperature in {c}{d}{u}?", "Check the weather in {c}{d}{u}."),
        bare="What is the weather?|How is the weather?|Will it rain?|Tell me the weather.|Is it cold outside?",
        results=(("temperature temp temp_c degrees", lambda r: whole(r, -15, 38)), ("condition conditions sky summary description", lambda r: pick(r, WEATHER)),
                 ("humidity humidity_percent", lambda r: whole(r, 20, 99))),
        finals=("It is {0} degrees and {1} in {c}.", "In {c} it is {1} with {0} degrees.", "The weather in {c} is {1} at {0} degrees."),
    ),
    domain(
        "set create add schedule new -", "reminder reminders alert remind_me",
        "Set a reminder.|Creates a reminder for the user|Remind the user of something at a time",
        (
            slot("m", "text message title task note", NOTE, "What to remind of|The text|"),
            slot("t", "time at remind_at hour", CLOCK, "Time, e.g. 14:30|When, as HH:MM|", " at {}"),
            slot("d", "date day", DATE, "The day|", " on {}"),
        ),
        ('Remind me{d}{t}: {m}.', "Set a reminder{d}{t}: {m}", 'Set a reminder "{m}"{d}{t}.', 'Create a reminder with the text "{m}"{d}{t}.', 'I need a reminder "{m}"{d}{t}.'),
        bare="Set a reminder.|Remind me, please.|I need a reminder.",
        results=(("id reminder_id", _id), ("status state", lambda r: pick(r, ("ok", "created", "saved")))),
        finals=("I set the reminder. Its id is {0}.", "Done. The reminder has the id {0}."),
    ),
    domain(
        "set start create begin", "timer countdown kitchen_timer",
        "Start a timer.|Starts a countdown|Sets a timer for some minutes",
        (
            slot("n", "minutes duration_minutes duration length", MEDIUM, "Length in minutes|Minutes|"),
            slot("l", "label name title", FOOD, "A name for the timer|", " for the {}| called {}"),
        ),
        ("Set a timer for {n} minutes{l}.", "Start a {n} minute timer{l}.", "Timer: {n} minutes{l}", "Count down {n} minutes{l}.", "Wake me in {n} minutes.", "I need a timer of {n} minutes{l}."),
        bare="Set a timer.|Start a timer, please.",
        results=(("ends_at end finish", lambda r: f"{whole(r, 0, 23):02d}:{whole(r, 0, 59):02d}"), ("timer_id id", _id)),
        finals=("The timer is running. It ends at {0}.", "I started the timer. It ends at {0}."),
    ),
    domain(
        "create add schedule new book", "event calendar_event appointment meeting calendar_entry",
        "Add an event to the calendar.|Creates a calendar entry|Schedules a meeting",
        (
            slot("m", "title name subject summary", TITLE, "Title of the event|"),
            slot("d", "date day start_date", DATE, "The day|Date as YYYY-MM-DD|"),
            slot("t", "time start_time start", CLOCK, "Start time|", " at {}"),
            slot("p", "attendees participants guests invitees", PEOPLE, "Names of the guests|Who takes part|", " with {}| and invite {}"),
        ),
        ('Add "{m}" to my calendar on {d}{t}{p}.', "Create the event {m} on {d}{t}{p}.", 'Schedule "{m}" on {d}{t}{p}.', 'Put "{m}" in the calendar for {d}{t}{p}.', "Plan {m} for {d}{t}{p}."),
        bare="Add an event to my calendar on Monday.|Create an event for tomorrow.",
        results=(("event_id id", _id), ("status state", lambda r: pick(r, ("confirmed", "created", "booked")))),
        finals=("The event is {1}. Its id is {0}.", "I added {m} to your calendar. The id is {0}."),
    ),
    domain(
        "list get show read", "events calendar agenda appointments schedule",
        "List the events of a day.|Shows the calendar|Returns the appointments of a date",
        (slot("d", "date day when", DATE, "The day|"), slot("n", "limit max_results count", SMALL, "How many at most|", ", at most {}| but only {}")),
        ("What is on my calendar on {d}{n}?", "Show my appointments for {d}{n}.", "What do I have on {d}?", "List my events of {d}{n}.", "Do I have anything on {d}?", "Am I free on {d}?"),
        results=(("events items entries", lambda r: [f"{pick(r, ('dentist', 'lunch', 'yoga', 'call', 'team meeting'))} {whole(r, 8, 19)}:00", f"{pick(r, ('dinner', 'train', 'chess', 'swimming'))} 20:00"]),),
        finals=("You have these events: {0}.", "On {d} you have: {0}."), clash="calendar",
    ),
    domain(
        "send write compose", "email mail e_mail message_by_email",
        "Send an email.|Sends a mail to someone|Writes an e-mail and sends it",
        (
            slot("p", "to recipient address to_address", EMAIL, "Address of the recipient|Email address|"),
            slot("s", "subject title", TITLE, "Subject line|", ' with the subject "{}"|, subject "{}",'),
            slot("m", "body text content message", NOTE, "The text of the mail|"),
        ),
        ('Send an email to {p}{s} saying "{m}".', "Email {p}{s}: {m}", 'Write a mail to {p}{s} with the text "{m}".', 'Mail {p}{s} that says "{m}".'),
        bare='Send an email saying "I will be late".|Send an email.|Write a mail with the text "see you soon".',
        results=(("message_id id", _id), ("status state", lambda r: pick(r, ("sent", "queued", "delivered")))),
        finals=("The email to {p} was {1}.", "Your mail to {p} is {1}. Its id is {0}."),
    ),
    domain(
        "send write post -", "message text_message sms chat_message",
        "Send a text message.|Sends an SMS to a person|Message a contact",
        (slot("p", "contact to name recipient person", PERSON, "Name of the person|Who gets it|"), slot("m", "text message body content", NOTE, "The text|")),
        ('Send a message to {p}: {m}', 'Text {p} "{m}".', 'Tell {p}: {m}', 'Write to {p}: "{m}"', 'Send {p} the message "{m}".'),
        bare='Send a message: "I am on my way".|Send a text message.',
        results=(("status state", lambda r: pick(r, ("sent", "delivered", "queued"))),),
        finals=("Your message to {p} was {0}.",), clash="mail",
    ),
    domain(
        "turn switch set control toggle", "light lights lamp light_state lights_state smart_light",
        "Switch the light in a room.|Turns a light on or off|Controls the lamps",
        (
            slot("r", "room location area", ROOM, "The room|"),
            slot("s", "state status power action", ON_OFF, "on or off|New state|"),
            slot("b", "brightness level dim", MEDIUM, "Brightness in percent|", " at {} percent| with brightness {}"),
        ),
        ("Turn {s} the light in {r}{b}.", "Switch {s} the light in {r}{b}.", "Turn the light in {r} {s}{b}.", "Lights {s} in {r}{b}", "Please turn {s} the lamp in {r}{b}."),
        results=(("status result", lambda r: pick(r, ("ok", "done", "changed"))),), finals=("Done. The light in {r} is {s}.",),
    ),
    domain(
        "set change adjust", "thermostat temperature heating room_temperature target_temperature",
        "Set the temperature of a room.|Controls the heating|Changes the thermostat",
        (slot("n", "temperature degrees target value", MEDIUM, "Degrees|Target temperature|"), slot("r", "room zone area", ROOM, "The room|", " in {}")),
        ("Set the heating{r} to {n} degrees.", "Make it {n} degrees{r}.", "Set the temperature{r} to {n}.", "Heat{r} to {n} degrees.", "I want {n} degrees{r}."),
        bare="Change the heating.|Set the temperature.",
        results=(("status result", lambda r: "ok"), ("current_temperature current", lambda r: whole(r, 14, 25))), finals=("The heating is set to {n} degrees. It is {1} degrees now.",),
    ),
    domain(
        "play start stream", "music song songs track playlist_music",
        "Play music.|Plays songs by an artist or of a genre|Starts the music player",
        (
            slot("a", "artist band singer", PERSON, "Name of the artist|"),
            slot("v", "volume loudness", MEDIUM, "Volume in percent|", " at volume {}"),
            slot("s", "shuffle random_order", flag((" in random order", ", shuffled", " on shuffle")), "Play in random order|", "{}"),
        ),
        ("Play music by {a}{s}{v}.", "Play something by {a}{s}{v}.", "Put on {a}{s}{v}.", "I want to hear {a}{s}{v}.", "Play songs of {a}{s}{v}."),
        results=(("now_playing track song", lambda r: pick(r, ("Blue Moon Road", "Old River", "Little Star", "Winter Song"))),), finals=("Now playing: {0}.", "I play {0} for you."), clash="music",
    ),
    domain(
        "play start", "genre radio station music_genre",
        "Play a genre of music.|Starts a radio station of this genre",
        (slot("g", "genre style kind", GENRE, "The genre|"), slot("n", "minutes duration", MEDIUM, "How long|", " for {} minutes")),
        ("Play some {g}{n}.", "Put on {g} music{n}.", "I would like to hear {g}{n}.", "Start a {g} station{n}."),
        results=(("station name", lambda r: pick(r, ("Radio Nine", "Blue Wave", "City Sound"))),), finals=("I started the station {0}.",), clash="music",
    ),
    domain(
        "create add save write new take", "note notes memo note_entry",
        "Save a note.|Writes a note|Stores a memo for the user",
        (slot("m", "text content note body", NOTE, "Text of the note|"), slot("g", "tags labels keywords", TAGS, "Tags of the note|", " with the tags {}| tagged {}")),
        ('Save the note "{m}"{g}.', 'Write down "{m}"{g}.', 'Make a note "{m}"{g}.', 'Note this: "{m}"{g}.', 'Take a note that says "{m}"{g}.'),
        bare="Save a note.|Write a note, please.",
        results=(("note_id id", _id),), finals=("I saved the note. Its id is {0}.",),
    ),
    domain(
        "create add new make", "task todo todo_item to_do",
        "Add a task to the list.|Creates a todo item|Adds something to do",
        (
            slot("m", "title task name description", NOTE, "What is to be done|"),
            slot("p", "priority importance urgency", PRIORITY, "How important it is|", " with {} priority"),
            slot("d", "due due_date deadline", DATE, "When it is due|", ", due {}| until {}"),
        ),
        ('Add the task "{m}"{p}{d}.', 'Put "{m}" on my todo list{p}{d}.', 'Create a task "{m}"{p}{d}.', 'New task: "{m}"{p}{d}.'),
        bare="Add a task.|Create a new task.",
        results=(("task_id id", _id), ("open_tasks total", lambda r: whole(r, 1, 30))), finals=("I added the task {0}. You have {1} open tasks.",), clash="note",
    ),
    domain(
        "add put append", "shopping_list groceries to_shopping_list items_to_list cart_items",
        "Add items to the shopping list.|Puts groceries on the list",
        (slot("i", "items products things groceries", ITEMS, "What to buy|The items|"), slot("s", "store shop market", PERSON, "The shop|", " for {}'s")),
        ("Add {i} to my shopping list.", "Put {i} on the list.", "I need to buy {i}.", "Shopping list: {i}", "Please add {i} to the shopping list."),
        bare="Add something to my shopping list.", clash="note",
        results=(("count total items_on_list", lambda r: whole(r, 2, 30)),), finals=("Done. There are {0} items on your list now.",),
    ),
    domain(
        "find search get lookup suggest", "recipe recipes dishes cooking_recipe meal_ideas",
        "Find recipes.|Search for a recipe with an ingredient|Suggests dishes",
        (
            slot("f", "ingredient food query main_ingredient", FOOD, "The main ingredient|"),
            slot("n", "max_minutes time_limit cooking_time", MEDIUM, "Longest cooking time in minutes|", " in at most {} minutes| under {} minutes"),
            slot("v", "vegetarian meat_free", flag((", vegetarian", " without meat")), "Only without meat|", "{}"),
        ),
        ("Find a recipe with {f}{n}{v}.", "What can I cook with {f}{n}{v}?", "Recipe for {f}{n}{v}", "I want to cook {f}{n}{v}.", "Give me a recipe for {f}{n}{v}."),
        bare="Find a recipe.|Give me a recipe.",
        results=(("title name recipe", lambda r: f"{pick(r, FOODS)} with {pick(r, FOODS)}"), ("minutes time", lambda r: whole(r, 5, 90))), finals=("I found {0}. It takes {1} minutes.", "You can make {0} in {1} minutes."), clash="search",
    ),
    domain(
        "find search get list lookup", "restaurants restaurant places_to_eat nearby_restaurants",
        "Find restaurants in a city.|Search for places to eat|Lists restaurants",
        (
            slot("c", "city location area place", CITY, "The city|"),
            slot("k", "cuisine kind food_type", enum({k: (k.capitalize(),) for k in ("italian", "indian", "chinese", "mexican", "japanese", "thai", "greek")}), "Kind of kitchen|", "{}"),
            slot("g", "guests party_size people", SMALL, "For how many people|", " for {} people"),
        ),
        ("Find a restaurant in {c}{g}.", "Find me a place to eat in {c}{g}.", "Restaurants in {c}{g}", "Where can I eat in {c}{g}?"),
        bare="Find a restaurant.|Where can I eat?",
        results=(("name restaurant", lambda r: pick(r, ("Casa Luna", "Blue Door", "The Old Mill", "Green Garden", "Chez Mia"))), ("rating stars", lambda r: whole(r, 30, 50) / 10)),
        finals=("I found {0}. Its rating is {1}.", "You can eat at {0}, rated {1}."), clash="search",
    ),
    domain(
        "book reserve make", "table restaurant_table table_reservation",
        "Reserve a table.|Books a table in a restaurant",
        (
            slot("r", "restaurant name place venue", TITLE, "Name of the restaurant|"),
            slot("n", "guests people party_size seats", SMALL, "Number of guests|"),
            slot("t", "time at hour", CLOCK, "Time of arrival|", " at {}"),
            slot("d", "date day", DATE, "Day|", " on {}"),
        ),
        ("Book a table at {r} for {n} people{d}{t}.", "Reserve a table for {n} at {r}{d}{t}.", "I need a table for {n} people at {r}{d}{t}."),
        bare="Book a table for two people.|Reserve a table for four.",
        results=(("reservation_id confirmation booking_id", _id),), finals=("Your table is booked. The confirmation is {0}.",),
    ),
    domain(
        "order buy purchase", "item product article items",
        "Order a product.|Buys something from the shop|Places an order",
        (
            slot("o", "product item article name", THING, "What to order|"),
            slot("n", "quantity amount count", SMALL, "How many|", ", quantity {}|, {} pieces"),
            slot("g", "gift_wrap as_gift", flag((", wrapped as a gift", " as a gift"), (", not as a gift", " without gift wrap")), "Wrap it as a gift|", "{}"),
        ),
        ("Order a {o}{n}{g}.", "Buy a {o}{n}{g}.", "I want to order a {o}{n}{g}.", "Get me a {o}{n}{g}."),
        bare="Order something.|I want to order a product.",
        results=(("order_id id number", _id), ("total price", _price)), finals=("Your order has the number {0}. It costs {1}.",), clash="shop",
    ),
    domain(
        "track get check lookup", "order order_status package shipment delivery delivery_status parcel",
        "Get the status of an order.|Tracks a package|Where is a delivery",
        (slot("i", "order_id id tracking_number order_number", ID, "Id of the order|The number|"),),
        ("Where is my order {i}?", "Track package {i}.", "What is the status of order {i}?", "Has order {i} been sent?", "Check order {i}.", "When does {i} arrive?"),
        bare="Where is my order?|Track my package.|Check my order, please.",
        results=(("status state", lambda r: pick(r, ("shipped", "delivered", "in transit", "delayed", "packed"))), ("eta arrives_on expected", iso_date)),
        finals=("Your order {i} is {0}. It arrives on {1}.", "Order {i} is {0}."), clash="shop",
    ),
    domain(
        "translate - run", "text translate translation phrase_translation",
        "Translate a text.|Translates words into another language",
        (slot("m", "text phrase input content", NOTE, "The text to translate|"), slot("l", "target_language language to target", LANGUAGE, "The target language|"),
         slot("s", "source_language source from_language", LANGUAGE, "Language of the text|", " from {}")),
        ('Translate "{m}"{s} to {l}.', 'Translate "{m}"{s} into {l}.', 'How do you say "{m}" in {l}?', 'What is "{m}" in {l}?', 'Say "{m}" in {l}.'),
        bare="Translate something to French.|Translate a text into German.",
        results=(("translation translated_text result", lambda r: " ".join(pick(r, ("la", "mira", "sol", "kan", "dor", "vel")) for _ in range(3))),), finals=("In {l} it is: {0}",),
    ),
    domain(
        "search find lookup query", "web internet google web_search online",
        "Search the web.|Finds pages on the internet|Looks something up online",
        (slot("q", "query q search_term text keywords", PHRASE, "What to search for|The search query|"), slot("n", "limit num_results count max_results top_k", SMALL, "Number of results|", ", {} results|, show {}")),
        ("Search the web for {q}{n}.", "Search for {q}{n}.", "Look up {q}{n}.", "Find something about {q}{n}.", "Google {q}{n}.", "Search online for {q}{n}.", "I want to read about {q}{n}."),
        bare="Search the web.|Search for something.",
        results=(("results titles hits", lambda r: [f"{pick(r, ('All about', 'A guide to', 'News on', 'Facts on'))} {pick(r, FOODS)}" for _ in range(whole(r, 1, 3))]),), finals=("I found: {0}.",), clash="search",
    ),
    domain(
        "get fetch read latest", "news headlines news_articles latest_news",
        "Get the latest news.|Reads headlines on a topic",
        (slot("q", "topic query subject category", PHRASE, "Topic of the news|"), slot("n", "limit count max_items", SMALL, "How many|", ", {} items| but only {}")),
        ("What is the news about {q}{n}?", "Show me news on {q}{n}.", "News about {q}{n}", "Give me headlines about {q}{n}.", "Any news on {q}?"),
        results=(("headlines items articles", lambda r: [f"{pick(r, ('Prices of', 'Fans of', 'Report on'))} {pick(r, FOODS)} {pick(r, ('rise', 'fall', 'grow'))}" for _ in range(whole(r, 1, 2))]),), finals=("The headlines are: {0}.",), clash="search",
    ),
    domain(
        "tell get random", "joke jokes riddle quote fun_fact",
        "Get a joke.|Returns something funny|A random line to amuse", (),
        ("Tell me a joke.", "Make me laugh.", "I want to hear a joke.", "Say something funny.", "A joke, please."),
        results=(("joke text content", lambda r: f"Why did the {pick(r, FOODS)} fall? It was too {pick(r, ('ripe', 'round', 'happy'))}."),), finals=("{0}",),
    ),
    domain(
        "call phone dial", "contact person number phone_contact",
        "Call a person.|Starts a phone call", (slot("p", "name contact person who", PERSON, "Whom to call|"), slot("v", "video with_video", flag((" with video", " by video")), "Video call|", "{}")),
        ("Call {p}{v}.", "Phone {p}{v}.", "I want to talk to {p}{v}.", "Ring {p}{v}.", "Start a call with {p}{v}."), bare="Make a call.|Call someone.",
        results=(("status state", lambda r: pick(r, ("ringing", "busy", "connected"))),), finals=("The call to {p} is {0}.",), clash="phone",
    ),
    domain(
        "check find locate get", "stock inventory availability product_stock",
        "Check how many are in stock.|Looks a product up in the inventory", (slot("o", "product item article sku", THING, "The product|"), slot("w", "warehouse store location", CITY, "The store|", " in {}")),
        ("Is the {o} in stock{w}?", "How many of the {o} do we have{w}?", "Check the stock of the {o}{w}.", "Do we have the {o}{w}?"),
        results=(("in_stock quantity available", lambda r: whole(r, 0, 400)),), finals=("There are {0} in stock.",), clash="shop",
    ),
    domain(
        "lend borrow reserve", "book library_book title", "Reserve a book in the library.|Lends a thing", (slot("m", "title book name", TITLE, "The title|"), slot("n", "days weeks period", MEDIUM, "How long|", " for {} days")),
        ('Reserve the book "{m}"{n}.', 'I want to borrow "{m}"{n}.', 'Lend me "{m}"{n}.'), results=(("due due_date return_by", iso_date),), finals=("The book is yours until {0}.",), clash="library",
    ),
    domain(
        "find locate where_is", "object lost_item my_things device", "Find a lost thing.|Locates an object at home", (slot("o", "object thing item device", OBJECT, "What to look for|"),),
        ("Where is my {o}?", "Find my {o}.", "I lost my {o}.", "Help me find my {o}."), results=(("room place location", lambda r: pick(r, ("kitchen", "garage", "office", "bedroom"))),), finals=("Your {o} is in the {0}.",),
    ),
)  # fmt: skip
