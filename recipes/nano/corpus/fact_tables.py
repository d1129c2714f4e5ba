"""The fixed facts that the model knows by heart.

Each table: phrasings of a question, the full answers, and rows (subject, object). A row's question
and answer fill `{s}` and `{o}`.
"""
# ruff: noqa: E501, SIM905 (tables of phrases read best with a row a line)

from dataclasses import dataclass

from recipes.nano.words import CAPITALS, DAYS, MONTHS


@dataclass(frozen=True, slots=True)
class Table:
    """Facts of one kind.

    Attributes:
        questions: templates with {s}.
        answers: full sentences with {s} and {o}.
        rows: subject and object.
    """

    questions: tuple[str, ...]
    answers: tuple[str, ...]
    rows: tuple[tuple[str, str], ...]


def _rows(text: str) -> tuple[tuple[str, str], ...]:
    pairs = (part.split("=") for part in " ".join(text.split()).split("; "))
    return tuple((left.strip(), right.strip()) for left, right in pairs)


def _ring(names: tuple[str, ...], step: int) -> tuple[tuple[str, str], ...]:
    return tuple((name, names[(i + step) % len(names)]) for i, name in enumerate(names))


_capitals = tuple(CAPITALS.items())
_ordinals = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
)
TABLES = (
    Table(
        (
            "What is the capital of {s}?", "Capital of {s}?", "Which city is the capital of {s}?",
            "Tell me the capital of {s}.", "What's the capital city of {s}?", "Name the capital of {s}.",
            "Do you know the capital of {s}?", "What is {s}'s capital?",
            "I need the capital of {s}.", "Can you tell me the capital of {s}?",
            "The capital of {s} is?", "What city is the capital of {s}?",
        ),
        ("The capital of {s} is {o}.", "{o} is the capital of {s}."),
        _capitals,
    ),
    Table(
        (
            "{o} is the capital of which country?", "Which country has the capital {o}?",
            "In which country is {o}?", "Where is {o}?", "What country is {o} in?",
            "What country has {o} as its capital?", "{o} is in which country?", "Which country is {o} in?",
        ),
        ("{o} is the capital of {s}.",),
        _capitals,
    ),
    Table(
        (
            "What colour is {s}?", "What color is {s}?", "What is the colour of {s}?",
            "What is the color of {s}?", "Which colour does {s} have?", "Tell me the colour of {s}.",
            "Do you know what colour {s} is?", "Which color is {s}?",
        ),
        ("The colour of {s} is {o}.",),
        _rows(
            """the sky=blue; grass=green; snow=white; blood=red; the sun=yellow; coal=black; milk=white;
            a banana=yellow; a tomato=red; a lemon=yellow; a carrot=orange; a strawberry=red;
            a polar bear=white; a frog=green; a raven=black; chocolate=brown; the sea=blue; salt=white;
            a flamingo=pink; a cucumber=green; a pumpkin=orange; an elephant=grey; a leaf=green;
            sugar=white; a swan=white"""
        ),
    ),
    Table(
        (
            "How many legs does {s} have?", "How many legs has {s}?", "Number of legs of {s}?",
            "Tell me how many legs {s} has.", "{s}: how many legs?", "How many legs are on {s}?",
        ),
        ("The number of legs of {s} is {o}.",),
        _rows(
            """a dog=4; a cat=4; a horse=4; a cow=4; a spider=8; an ant=6; a bee=6; a bird=2;
            a chicken=2; a human=2; a fish=0; a snake=0; a fly=6; a duck=2; an elephant=4; a beetle=6;
            a lion=4; a frog=4; a mouse=4; a butterfly=6"""
        ),
    ),
    Table(
        (
            "What is the opposite of {s}?", "Opposite of {s}?", "Tell me the opposite of {s}.",
            "What's the opposite of {s}?", "Which word is the opposite of {s}?",
            "Give me the opposite of {s}.", "What word means the opposite of {s}?", "{s}: the opposite?",
        ),
        ("The opposite of {s} is {o}.",),
        _rows(
            """hot=cold; cold=hot; big=small; small=big; up=down; down=up; day=night; night=day; fast=slow;
            slow=fast; old=young; young=old; happy=sad; sad=happy; open=closed; full=empty; empty=full;
            light=dark; dark=light; left=right; right=left; high=low; low=high; wet=dry; dry=wet;
            rich=poor; poor=rich; hard=soft; soft=hard; loud=quiet; quiet=loud; early=late; late=early;
            good=bad; bad=good; long=short; short=long; heavy=light; true=false; inside=outside;
            black=white; white=black; strong=weak; weak=strong; easy=difficult; near=far; thick=thin;
            clean=dirty; begin=end; buy=sell; win=lose; love=hate; first=last; before=after"""
        ),
    ),
    Table(
        (
            "What sound does {s} make?", "What does {s} say?", "Which sound does {s} make?",
            "How does {s} sound?", "Tell me the sound of {s}.", "What noise does {s} make?",
        ),
        ("The sound of {s} is {o}.",),
        _rows(
            """a dog=woof; a cat=meow; a cow=moo; a sheep=baa; a duck=quack; a pig=oink; a horse=neigh;
            a rooster=cock-a-doodle-doo; a lion=roar; a snake=hiss; a bee=buzz; a frog=croak; an owl=hoot;
            a mouse=squeak; a wolf=howl"""
        ),
    ),
    Table(
        (
            "What is a young {s} called?", "What do you call a baby {s}?", "A young {s} is called what?",
            "What is the name for a baby {s}?", "How is a young {s} called?", "Baby {s} is called?",
        ),
        ("A young {s} is called a {o}.",),
        _rows(
            """dog=puppy; cat=kitten; cow=calf; sheep=lamb; horse=foal; pig=piglet; hen=chick;
            duck=duckling; lion=cub; bear=cub; goat=kid; frog=tadpole; deer=fawn; goose=gosling;
            kangaroo=joey"""
        ),
    ),
    Table(
        (
            "Which month comes after {s}?", "What month comes after {s}?", "What is the month after {s}?",
            "The month after {s}?", "Which month follows {s}?", "After {s} comes which month?",
        ),
        ("The month after {s} is {o}.", "After {s} comes {o}."),
        _ring(MONTHS, 1),
    ),
    Table(
        (
            "Which month comes before {s}?", "What month comes before {s}?", "What is the month before {s}?",
            "The month before {s}?", "Which month is before {s}?", "Before {s} comes which month?",
        ),
        ("The month before {s} is {o}.", "Before {s} comes {o}."),
        _ring(MONTHS, -1),
    ),
    Table(
        (
            "Which day comes after {s}?", "What day comes after {s}?", "What is the day after {s}?",
            "The day after {s}?", "Which day follows {s}?", "If today is {s}, what day is tomorrow?",
        ),
        ("The day after {s} is {o}.", "After {s} comes {o}."),
        _ring(DAYS, 1),
    ),
    Table(
        (
            "Which day comes before {s}?", "What day comes before {s}?", "What is the day before {s}?",
            "The day before {s}?", "Which day is before {s}?", "If today is {s}, what day was yesterday?",
        ),
        ("The day before {s} is {o}.", "Before {s} comes {o}."),
        _ring(DAYS, -1),
    ),
    Table(
        (
            "What is the {s} month of the year?", "Which month is the {s} of the year?",
            "Name the {s} month.", "Which is the {s} month?", "Tell me the {s} month of the year.",
        ),
        ("The {s} month of the year is {o}.",),
        tuple(zip(_ordinals, MONTHS, strict=True)),
    ),
    Table(
        (
            "How many days does {s} have?", "How many days are in {s}?", "Number of days in {s}?",
            "Tell me how many days {s} has.", "How long is {s} in days?", "How many days has {s}?",
        ),
        ("The number of days in {s} is {o}.",),
        _rows(
            """January=31; February=28 or 29; March=31; April=30; May=31; June=30; July=31; August=31;
            September=30; October=31; November=30; December=31; a week=7; a year=365; a leap year=366"""
        ),
    ),
    Table(
        (
            "How many {s}?", "Can you tell me how many {s}?", "Tell me how many {s}.",
            "Do you know how many {s}?", "I forgot how many {s}.",
        ),
        ("The number is {o}.",),
        _rows(
            """hours are in a day=24; minutes are in an hour=60; seconds are in a minute=60;
            months are in a year=12; days are in a week=7; weeks are in a year=52; years are in a century=100;
            years are in a decade=10; eggs are in a dozen=12; sides does a triangle have=3;
            sides does a square have=4; sides does a hexagon have=6; sides does a pentagon have=5;
            sides does an octagon have=8; letters are in the alphabet=26; wheels does a car have=4;
            wheels does a bicycle have=2; fingers are on one hand=5; continents are there=7;
            planets are in the solar system=8; metres are in a kilometre=1000;
            grams are in a kilogram=1000; centimetres are in a metre=100; arms does an octopus have=8;
            strings does a violin have=4; strings does a guitar have=6; colours are in a rainbow=7;
            players are in a football team=11; seasons are in a year=4; cents are in a dollar=100;
            hearts does an octopus have=3; wings does a bird have=2; zeros are in a million=6"""
        ),
    ),
    Table(
        (
            "What is {s}?", "What's {s}?", "Tell me what is {s}.", "Name {s}.", "Do you know {s}?",
            "Can you name {s}?", "Can you tell me {s}?", "Which is {s}?",
        ),
        ("{s^} is {o}.",),
        _rows(
            """the largest planet=Jupiter; the smallest planet=Mercury; the hottest planet=Venus;
            the planet closest to the sun=Mercury; the red planet=Mars; the planet with big rings=Saturn;
            the largest animal=the blue whale; the tallest animal=the giraffe;
            the fastest land animal=the cheetah; the largest land animal=the elephant;
            the largest bird=the ostrich; the largest ocean=the Pacific Ocean;
            the largest continent=Asia; the smallest continent=Australia;
            the highest mountain=Mount Everest; the longest river=the Nile;
            the largest country=Russia; the largest desert=Antarctica; the first month=January;
            the last month=December; the coldest continent=Antarctica;
            the first letter of the alphabet=A; the last letter of the alphabet=Z;
            the closest star to the Earth=the Sun; the chemical formula of water=H2O;
            the chemical symbol of gold=Au; the chemical symbol of iron=Fe;
            the chemical symbol of oxygen=O; the chemical symbol of silver=Ag;
            the hardest natural material=diamond; the king of the jungle=the lion;
            the currency of Japan=the yen; the currency of Germany=the euro;
            the currency of England=the pound; the currency of India=the rupee;
            the currency of the United States=the dollar; the square root of 16=4;
            the square root of 25=5; the square root of 81=9; the square root of 100=10;
            the fourth planet from the sun=Mars; the third planet from the sun=the Earth"""
        ),
    ),
    Table(
        (
            "{s}?", "Can you tell me: {s}?", "Tell me, {s}?", "I wonder: {s}?", "Do you know this: {s}?",
        ),
        ("{o}",),
        _rows(
            """who wrote Romeo and Juliet=William Shakespeare wrote it.;
            who painted the Mona Lisa=Leonardo da Vinci painted it.;
            who wrote Hamlet=William Shakespeare wrote it.;
            who was the first person on the Moon=Neil Armstrong was the first.;
            at what temperature does water boil=Water boils at 100 degrees Celsius.;
            at what temperature does water freeze=Water freezes at 0 degrees Celsius.;
            what do bees make=Bees make honey.; what do cows give=Cows give milk.;
            what do plants need to grow=Plants need water, light and air.;
            where does the sun rise=The sun rises in the east.;
            where does the sun set=The sun sets in the west.;
            what is frozen water called=Frozen water is called ice.;
            which gas do we breathe in to live=We need oxygen.;
            what pulls things to the ground=Gravity pulls things down.;
            which organ pumps the blood=The heart pumps the blood.;
            what does a caterpillar become=A caterpillar becomes a butterfly.;
            which season comes after winter=Spring comes after winter.;
            which season comes after summer=Autumn comes after summer.;
            which season comes after spring=Summer comes after spring.;
            which season comes after autumn=Winter comes after autumn.;
            what moves around the Earth=The Moon moves around the Earth.;
            what does the Earth move around=The Earth moves around the Sun.;
            is the sun a star=Yes, the sun is a star.; is a whale a fish=No, a whale is a mammal.;
            is a tomato a fruit=Yes, a tomato is a fruit.; can penguins fly=No, penguins cannot fly.;
            do fish have legs=No, fish have no legs.; is ice hot=No, ice is cold.;
            is a spider an insect=No, a spider is an arachnid.;
            is the Earth flat=No, the Earth is round.; can birds fly=Yes, most birds can fly.;
            which animal barks=A dog barks.; which animal gives wool=A sheep gives wool.;
            what do you get if you mix blue and yellow=You get green.;
            what do you get if you mix red and yellow=You get orange.;
            what do you get if you mix red and blue=You get purple.;
            what language is spoken in Brazil=Portuguese is spoken in Brazil.;
            what language is spoken in France=French is spoken in France.;
            what language is spoken in Japan=Japanese is spoken in Japan.;
            what language is spoken in Mexico=Spanish is spoken in Mexico.;
            on which continent is Egypt=Egypt is in Africa.; on which continent is Brazil=Brazil is in South America.;
            on which continent is Japan=Japan is in Asia.; on which continent is France=France is in Europe.;
            on which continent is Canada=Canada is in North America."""
        ),
    ),
)  # fmt: skip
