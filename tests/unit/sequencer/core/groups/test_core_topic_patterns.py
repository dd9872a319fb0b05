"""Patterns over topic names: they match like Python's `re`, in linear time, and support only RE2's syntax."""

import re
from random import Random

import pytest

from penstock.contracts.regex.regex_subscriptions import BadPattern, Pattern

LETTERS = "ab.-_1A"
ATOMS = [".", "[ab]", "[^a]", r"\d", r"\w", "[a-c1]", r"\.", r"\W", "^", "$", r"[^\w.]", r"\S", r"[\d_-]", "[]a]"]
REPETITIONS = ["*", "+", "?", "{2}", "{1,2}", "{0,}", "*?", "+?", "{0}"]


def some_pattern(random: Random, depth: int = 0) -> str:
    kind = random.randrange(9 if depth < 4 else 3)
    if kind < 2:
        return re.escape(random.choice(LETTERS))
    if kind == 2:
        return random.choice(ATOMS)
    if kind == 3:
        return f"({some_pattern(random, depth + 1)})"
    if kind == 4:
        return f"(?:{some_pattern(random, depth + 1)}|{some_pattern(random, depth + 1)})"
    if kind == 5:
        return f"(?:{some_pattern(random, depth + 1)}){random.choice(REPETITIONS)}"
    return some_pattern(random, depth + 1) + some_pattern(random, depth + 1)


@pytest.mark.parametrize("seed", range(10))
def test_a_pattern_matches_the_same_names_as_pythons(seed: int) -> None:
    random = Random(seed)
    matched = 0
    for _ in range(300):
        text = ("(?i)" if random.random() < 0.2 else "") + some_pattern(random)
        pattern, theirs = Pattern(text), re.compile(text, re.ASCII)
        for _ in range(10):
            name = "".join(random.choice(LETTERS) for _ in range(random.randrange(1, 6)))
            assert pattern.matches(name) == bool(theirs.fullmatch(name)), (text, name)
            matched += pattern.matches(name)
    assert matched > 50


@pytest.mark.parametrize("text", ["[A-Za-z0-9._-]*", "a.*b|[a-z]*", ".*[b$]"])
def test_only_a_rest_that_accepts_every_character_ends_a_match_early(text: str) -> None:
    for name in ("ab", "ab$c", "a$b", "$", "abc-"):
        assert Pattern(text).matches(name) == bool(re.fullmatch(text, name))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (r"\Qa.b\E+", "a.bb"),
        (r"orders\Q.\E.*", "orders.eu"),
        (r"\x61\x2e", "a."),
        ("(?P<region>eu|us)-orders", "us-orders"),
        ("(?<region>eu)-orders", "eu-orders"),
        ("(?i:EU)-a", "eu-a"),
        ("(?i)a(?-i)B", "AB"),
        ("a{,2}", "a{,2}"),
        ("[[:alpha:]_]+[[:digit:]]", "a_b1"),
        ("[[:^digit:]]+[[:punct:]]", "ab."),
        (r"\Aab\z", "ab"),
        ("(?sm)a.c", "abc"),
    ],
)
def test_syntax_of_re2_that_python_writes_differently_is_supported(text: str, name: str) -> None:
    if "{,2}" in text:
        assert not Pattern(text).matches("aa"), "a brace that begins no repetition is a literal"
    else:
        assert Pattern(text).matches(name)
        assert not Pattern(text).matches(f"{name}x") or text.endswith(".*")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(", "missing )"),
        ("a)", "unexpected )"),
        ("[a", "unexpected end"),
        ("*", "nothing to repeat before *"),
        ("a**", "nothing to repeat between two repetitions"),
        ("a{2,1}", "bad repetition {2,1}"),
        ("a{1001}", "bad repetition {1001}"),
        ("[b-a]", "bad range b-a"),
        ("(?=a)", "unknown group (?="),
        ("(?<=a)", "unknown group (?<"),
        ("(?P<>a)", "bad group name"),
        (r"\b", r"unknown escape \b"),
        (r"\1", r"unknown escape \1"),
        (r"\pL", r"unknown escape \p"),
        (r"\xg0", r"bad escape \x"),
        ("a\\", "unexpected end"),
        ("[[:alphas:]]", "unknown class"),
        ("[[:alpha]", "unknown class"),
        ("a" * 1_001, "longer than 1000 characters"),
        ("a{200}b{200}", "more than 250 characters and classes, with repetitions expanded"),
        ("((){1000}){1000}", "too many nested repetitions"),
        ("(" * 60 + ")" * 60, "more than 50 nested groups"),
    ],
)
def test_an_invalid_pattern_is_rejected_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(BadPattern, match=re.escape(why)):
        Pattern(text)


@pytest.mark.parametrize("text", ["(a*)*b", "((a+)+)+$", "(a|a)*c", "(.*)*(.*)*(.*)*x", "(a|b)*a(a|b){14}"])
def test_patterns_that_make_others_backtrack_for_ever_take_a_bounded_number_of_steps(text: str) -> None:
    pattern = Pattern(text)
    before = pattern.steps_computed
    random = Random(1)
    for _ in range(20):
        assert not pattern.matches("".join(random.choice("ab") for _ in range(248)) + "-")
    assert 0 < pattern.steps_computed - before <= 20 * 250


def test_the_number_of_remembered_steps_is_bounded_and_results_do_not_depend_on_it() -> None:
    few, many = Pattern("(a|b)*a(a|b){9}", remembered_steps_max=3), Pattern("(a|b)*a(a|b){9}")
    random = Random(2)
    for _ in range(50):
        name = "".join(random.choice("ab") for _ in range(20))
        matches = few.matches(name)
        assert few.steps_remembered <= 3
        assert matches == many.matches(name)
    assert many.steps_remembered > 3
