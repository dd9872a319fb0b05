"""Settings: their sources, and the error texts for invalid ones."""

from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta

from penstock.runtime.process.config import ServiceConfig, read_config


class ExampleConfig(ServiceConfig, frozen=True, kw_only=True):
    """A service's settings."""

    buffer_bytes_max: Annotated[int, Meta(ge=1, le=1000, description="bytes held, 100% of them")] = 10
    ratio: float = 0.5
    create_topics: bool = True
    drop_topics: Annotated[bool, Meta(description="may drop topics")] = False


class FixedEntropy:
    def take(self, count: int) -> bytes:
        return bytes(range(count))


def read(*argv: str, **environ: str) -> ExampleConfig:
    return read_config(ExampleConfig, argv, environ, program="example", entropy=FixedEntropy())


def error_text(capsys: pytest.CaptureFixture[str], *argv: str, **environ: str) -> str:
    with pytest.raises(SystemExit) as ended:
        read(*argv, **environ)
    assert ended.value.code == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1, "it is one sentence"
    return text.strip()


def test_without_settings_the_defaults_hold_and_a_unique_name_is_chosen() -> None:
    config = read()
    assert config == ExampleConfig(instance="example-00010203")
    assert config.http_port == 0
    names = {read_config(ExampleConfig, [], {}, program="example").instance for _ in range(20)}
    assert len(names) == 20


def test_flags_come_before_the_environment_and_the_environment_before_the_defaults() -> None:
    config = read(
        "--zone", "a", "--http-port=81", PENSTOCK_ZONE="b", PENSTOCK_CLUSTER="c", PENSTOCK_UNKNOWN="is left alone"
    )
    assert (config.zone, config.http_port, config.cluster) == ("a", 81, "c")


def test_an_env_file_comes_after_the_environment_and_before_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("PENSTOCK_ZONE=f\nPENSTOCK_CLUSTER=f\nPENSTOCK_HTTP_PORT=82\nPENSTOCK_UNKNOWN=is left alone\n")
    config = read("--http-port", "81", PENSTOCK_CLUSTER="e", PENSTOCK_ENV_FILE=str(path))
    assert (config.zone, config.cluster, config.http_port) == ("f", "e", 81)
    assert config.env_file == str(path)
    other = tmp_path / "other"
    other.write_text("PENSTOCK_ZONE=o\n")
    assert read("--env-file", str(other), PENSTOCK_ENV_FILE=str(path)).zone == "o"
    assert read(PENSTOCK_ENV_FILE="").zone == "z1"


def test_the_keys_in_an_env_file_reach_the_store_wherever_its_address_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "env"
    keys = "AWS_ACCESS_KEY_ID=someone\nAWS_SECRET_ACCESS_KEY=a/b\n"
    path.write_text(f"{keys}PENSTOCK_STORE_URL=s3://f\n")
    with_keys = "?access_key=someone&secret_key=a%2Fb"
    assert read("--env-file", str(path)).store_url == f"s3://f{with_keys}"
    assert read("--env-file", str(path), PENSTOCK_STORE_URL="s3://e").store_url == f"s3://e{with_keys}"
    assert read("--env-file", str(path), "--store-url", "s3://a").store_url == f"s3://a{with_keys}"
    assert read("--env-file", str(path), AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="y").store_url == "s3://f"
    path.write_text(keys)
    assert read("--env-file", str(path)).store_url == ServiceConfig().store_url


def test_the_text_of_settings_has_no_secrets() -> None:
    config = read("--nats-password", "hidden", "--store-url", "s3://b?access_key=k&secret_key=hidden")
    assert repr(config) == "ExampleConfig(instance='example-00010203')"


@pytest.mark.parametrize("text", ["true", "1", "True"])
def test_texts_become_numbers_and_booleans(text: str) -> None:
    config = read("--buffer-bytes-max", "7", "--ratio", "0.25", PENSTOCK_CREATE_TOPICS=text)
    assert (config.buffer_bytes_max, config.ratio, config.create_topics) == (7, 0.25, True)


def test_a_flag_of_a_boolean_setting_works_alone_or_with_a_value() -> None:
    for argv in (["--drop-topics"], ["--drop-topics", "true"], ["--drop-topics=1"], ["--drop-topics", "--zone", "a"]):
        assert read(*argv, PENSTOCK_DROP_TOPICS="false").drop_topics
    assert not read("--drop-topics", "false", PENSTOCK_DROP_TOPICS="true").drop_topics
    assert not read().drop_topics


def test_a_text_that_looks_like_a_number_stays_text() -> None:
    assert read("--nats-password", "0123").nats_password == "0123"


def test_an_empty_instance_name_is_chosen_and_a_given_one_is_kept() -> None:
    assert read(PENSTOCK_INSTANCE="").instance == "example-00010203"
    assert read(PENSTOCK_INSTANCE="mine").instance == "mine"


@pytest.mark.parametrize(
    ("argv", "environ", "sentence"),
    [
        (["--http-port", "x"], {}, "example: --http-port must be a whole number: 'x'"),
        ([], {"PENSTOCK_HTTP_PORT": ""}, "example: PENSTOCK_HTTP_PORT must be a whole number: ''"),
        (["--http-port", "65536"], {}, "example: --http-port must be <= 65535: '65536'"),
        (["--buffer-bytes-max", "0"], {}, "example: --buffer-bytes-max must be >= 1: '0'"),
        (["--ratio", "half"], {}, "example: --ratio must be a number: 'half'"),
        (["--create-topics", "maybe"], {}, "example: --create-topics must be true or false: 'maybe'"),
        (["--nonsense", "1"], {}, "example: unrecognized arguments: --nonsense 1"),
        (["--buffer", "1"], {}, "example: unrecognized arguments: --buffer 1"),
        (["--zone"], {}, "example: argument --zone: expected one argument"),
        (["--zone", "a.b"], {}, "example: zone must be 1 to 64 letters, digits, '_' or '-': 'a.b'"),
        (["--log-level", "loud"], {}, "example: log level must be debug, info, warning or error: 'loud'"),
        (["--env-file", "/no"], {}, "example: cannot read the env file /no: No such file or directory"),
        ([], {"PENSTOCK_ENV_FILE": "/no"}, "example: cannot read the env file /no: No such file or directory"),
        (["--log-format", "xml"], {}, "example: log format must be auto, pretty or json: 'xml'"),
    ],
)
def test_bad_settings_end_the_process_with_one_sentence(
    argv: list[str], environ: dict[str, str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert error_text(capsys, *argv, **environ) == sentence


def test_a_bad_line_in_an_env_file_ends_the_process_with_its_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "env").write_text("# settings\nPENSTOCK_ZONE a\n")
    text = error_text(capsys, "--env-file", str(tmp_path / "env"))
    assert text == f"example: line 2 of {tmp_path / 'env'} is not NAME=value"


def test_help_names_every_flag_its_variable_its_meaning_and_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read("--help")
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--buffer-bytes-max VALUE bytes held, 100% of them [PENSTOCK_BUFFER_BYTES_MAX] (default: 10)" in text
    for field in ExampleConfig.__struct_fields__:
        value = "[VALUE]" if field.endswith("_topics") else "VALUE"
        assert f"--{field.replace('_', '-')} {value}" in text
        assert f"[PENSTOCK_{field.upper()}]" in text
