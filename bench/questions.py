"""Ten questions about the cities and countries of the world, as statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from storeclient import RecordId


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the script whose last value is the answer."""

    asks: str
    script: str
    params: dict[str, Any]


QUESTIONS: Final[tuple[Question, ...]] = (
    Question(
        "Which are the largest cities of Japan?",
        """
        SELECT name, population, timezone FROM city
        WHERE country = $country ORDER BY population DESC LIMIT 5
        """,
        {"country": RecordId("country", "JP")},
    ),
    Question(
        "Which cities lie in the box between Lyon and Venice, 44° to 46° north?",
        """
        SELECT name, country.name AS country, latitude, longitude, population FROM city
        WHERE latitude >= $south AND latitude <= $north
            AND longitude >= $west AND longitude <= $east
        ORDER BY population DESC LIMIT 5
        """,
        {"south": 44.0, "north": 46.0, "west": 4.8, "east": 12.4},
    ),
    Question(
        "In which time zones do most people live in cities?",
        """
        SELECT timezone, sum(population) AS people, count() AS cities FROM city
        GROUP BY timezone ORDER BY people DESC LIMIT 5
        """,
        {},
    ),
    Question(
        "Which cities do others call something with 'Nova' or 'Nueva', and are not named so?",
        """
        SELECT name, country.name AS country, population FROM city
        WHERE string::join(alternatenames, '|') ~ $word AND NOT (name ~ $word)
        ORDER BY population DESC LIMIT 5
        """,
        {"word": r"\b(Nova|Nueva)\b"},
    ),
    Question(
        "How many countries, people and square kilometres has each continent?",
        """
        SELECT continentcode AS continent, count() AS countries, sum(population) AS people,
            sum(areakm2) AS km2
        FROM country GROUP BY continentcode ORDER BY people DESC
        """,
        {},
    ),
    Question(
        "What does one pay with, and what does one speak, in the largest cities?",
        """
        SELECT name, country.name AS country, country.currencyname AS currency,
            country.languages[0] AS language, population
        FROM city ORDER BY population DESC LIMIT 5
        """,
        {},
    ),
    Question(
        "Which are the largest capitals?",
        """
        SELECT name, country.name AS country, population FROM city
        WHERE name = country.capital ORDER BY population DESC LIMIT 5
        """,
        {},
    ),
    Question(
        "How large is a city: the smallest, the median, the mean, the largest?",
        """
        LET $all = (SELECT count() AS cities, min(population) AS smallest,
            mean(population) AS mean, max(population) AS largest FROM city GROUP ALL)[0];
        LET $middle = math::floor($all.cities / 2);
        SELECT $all.cities AS cities, $all.smallest AS smallest, population AS median,
            math::round($all.mean) AS mean, $all.largest AS largest
        FROM city ORDER BY population START $middle LIMIT 1
        """,
        {},
    ),
    Question(
        "Who are the neighbours of Switzerland, and how many cities have they here?",
        """
        LET $neighbours = $country.neighbours;
        SELECT name, capital, population,
            (SELECT VALUE count() FROM city WHERE country = $parent.id GROUP ALL)[0] AS cities
        FROM $neighbours ORDER BY name
        """,
        {"country": RecordId("country", "CH")},
    ),
    Question(
        "Which countries have the most cities of a million?",
        """
        SELECT country.name AS land, count() AS cities, sum(population) AS people FROM city
        WHERE population >= 1000000
        GROUP BY country.name HAVING cities >= 10 ORDER BY cities DESC, land LIMIT 5
        """,
        {},
    ),
)
