"""Files of settings and secrets: how lines are read, and errors that reveal no secret."""

from pathlib import Path

import pytest

from penstock.contracts.errors import Invalid
from penstock.runtime.process.env_file import NO_FILE, EnvFile, parse_env, read_env_file, with_store_keys

SECRET = "do-not-reveal"
KEYS = EnvFile({}, "someone", "a/b+c d&e")
S3 = "s3://bucket/prefix"
WITH_KEYS = "access_key=someone&secret_key=a%2Fb%2Bc+d%26e"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("A=", ""),
        ("  A=b  ", "b"),
        ("A= b", "b"),
        ("A=b\r", "b"),
        ("A=b=c", "b=c"),
        ("A=b c", "b c"),
        ("A=b # comment", "b"),
        ("A=b#c", "b#c"),
        ("A=#b", "#b"),
        ("A= # comment", ""),
        ("A=it's", "it's"),
        ("A=$HOME\\n", "$HOME\\n"),
        ("A=''", ""),
        ("A='b # \"c\" \\'", 'b # "c" \\'),
        ("A='b' # comment", "b"),
        ('A=""', ""),
        ('A=" b # c "', " b # c "),
        ('A="b" # comment', "b"),
        (r'A="\"b\" \\ c"', r'"b" \ c'),
        ("A=ünïcode", "ünïcode"),
    ],
)
def test_a_line_gives_its_value(line: str, value: str) -> None:
    assert parse_env(f"# comment\n\n{line}\n  # another\nB=c\n", "file") == {"A": value, "B": "c"}


@pytest.mark.parametrize(
    ("line", "error_text"),
    [
        (SECRET, "line 3 of file is not NAME=value"),
        (f"={SECRET}", "line 3 of file is not NAME=value"),
        (f"A B={SECRET}", "line 3 of file is not NAME=value"),
        (f"1A={SECRET}", "line 3 of file is not NAME=value"),
        (f"A-B={SECRET}", "line 3 of file is not NAME=value"),
        (f"export A={SECRET}", "line 3 of file is not NAME=value"),
        (f"X={SECRET}", "line 3 of file sets X again"),
        (f"A='{SECRET}", "line 3 of file: the value of A has no closing quote"),
        (f"A='{SECRET}' b", "line 3 of file: the value of A has no closing quote"),
        (f'A="{SECRET}', "line 3 of file: the value of A has no closing quote"),
        (f'A="{SECRET}"b', "line 3 of file: the value of A has no closing quote"),
        (f'A="{SECRET}\\n"', "line 3 of file: the value of A .* a backslash that escapes nothing"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_by_its_number_without_its_text(line: str, error_text: str) -> None:
    with pytest.raises(Invalid, match=error_text) as raised:
        parse_env(f"# comment\nX=y\n{line}\n", "file")
    assert SECRET not in str(raised.value)


def test_a_file_gives_settings_and_keys_and_leaves_other_programs_variables_alone(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("PENSTOCK_ZONE=a\nAWS_ACCESS_KEY_ID=someone\nAWS_SECRET_ACCESS_KEY=hidden\nPATH=/nowhere\n")
    assert read_env_file(str(path)) == EnvFile({"PENSTOCK_ZONE": "a"}, "someone", "hidden")
    assert read_env_file("") == NO_FILE


@pytest.mark.parametrize(
    ("text", "error_text"),
    [
        (
            b"AWS_SESSION_TOKEN=do-not-reveal\n",
            "sets AWS_SESSION_TOKEN, but of the AWS variables only AWS_ACCESS_KEY_ID and",
        ),
        (b"AWS_ACCESS_KEY_ID=do-not-reveal\n", "has only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        (b"AWS_ACCESS_KEY_ID=\nAWS_SECRET_ACCESS_KEY=do-not-reveal\n", "has only one of AWS_ACCESS_KEY_ID and"),
        (b"PENSTOCK_ENV_FILE=other\n", "names another env file, but only one"),
        (b"A=\xff\n", "is not text in utf-8"),
    ],
)
def test_an_unsupported_file_is_rejected_without_its_values(tmp_path: Path, text: bytes, error_text: str) -> None:
    path = tmp_path / "env"
    path.write_bytes(text)
    with pytest.raises(Invalid, match=error_text) as raised:
        read_env_file(str(path))
    assert str(path) in str(raised.value)
    assert SECRET not in str(raised.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(Invalid, match="cannot read the env file /nowhere/env: No such file or directory"):
        read_env_file("/nowhere/env")


def test_the_text_of_an_env_file_has_no_secrets() -> None:
    assert repr(EnvFile({"PENSTOCK_NATS_PASSWORD": SECRET}, SECRET, SECRET)) == "EnvFile(PENSTOCK_NATS_PASSWORD)"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (S3, f"{S3}?{WITH_KEYS}"),
        (f"{S3}?", f"{S3}?{WITH_KEYS}"),
        (f"{S3}?endpoint=http://s3:8333&region=x", f"{S3}?endpoint=http://s3:8333&region=x&{WITH_KEYS}"),
        (f"{S3}?access_key=x&secret_key=y", f"{S3}?access_key=x&secret_key=y"),
        ("file:///objects", "file:///objects"),
        ("memory://objects", "memory://objects"),
    ],
)
def test_keys_become_a_part_of_an_s3_address_that_has_none(url: str, expected: str) -> None:
    assert with_store_keys(url, KEYS, {}) == expected
    assert with_store_keys(url, NO_FILE, {}) == url


def test_keys_in_the_environment_come_before_those_in_the_file() -> None:
    assert with_store_keys(S3, KEYS, {"AWS_ACCESS_KEY_ID": "else"}) == S3
    assert with_store_keys(S3, KEYS, {"AWS_SECRET_ACCESS_KEY": "else"}) == S3
    assert with_store_keys(S3, KEYS, {"AWS_ACCESS_KEY_ID": "", "AWS_REGION": "x"}) == f"{S3}?{WITH_KEYS}"
