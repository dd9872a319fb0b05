"""Credentials are created once, agree between servers and services, and survive an interruption at any step."""

import json
import os
import re
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main
from penstock.cli.credentials import BUCKET_MAKER, KEYS, ROLES, USERS, Wanted, make_credentials
from penstock.cli.credentials.nats_accounts import ANY, accounts, permissions
from penstock.cli.credentials.store_rights import HOSTING, RIGHTS, Place, policy
from penstock.contracts.errors import Invalid
from penstock.runtime.clock import SystemEntropy
from penstock.runtime.nats.server import find_nats_server
from penstock.runtime.process.env_file import parse_env, read_env_file

FILES = {
    "nats/credentials.env",
    "nats/route.env",
    "nats/accounts.conf",
    "s3/s3.json",
    *(f"{name}/credentials.env" for name in [*ROLES, BUCKET_MAKER]),
}
OTHER_UID = 12_345
WITHOUT_CACHER = tuple(role for role in ROLES if role != "cacher")


class Interrupted(BaseException):
    """The process dies."""


def make(folder: Path, **options: Any) -> list[str]:
    return make_credentials(folder, Wanted(**options), SystemEntropy())


def texts(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def values(path: Path) -> dict[str, str]:
    return parse_env(path.read_text(), str(path))


def identities(folder: Path) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads((folder / "s3" / "s3.json").read_text())["identities"]}


def check_servers_and_services_agree(folder: Path) -> None:
    """Check that every service has the secrets of the servers, and that no file is missing or left over."""
    assert set(texts(folder)) == FILES
    users, keys = values(folder / "nats" / "credentials.env"), identities(folder)
    assert set(users) == {f"{user.upper()}_PASSWORD" for user in USERS}
    assert set(keys) == set(KEYS)
    route = values(folder / "nats" / "route.env")
    assert all(f"//route:{route['ROUTE_PASSWORD']}@" in address for address in json.loads(route["ROUTES"]))
    for role in ROLES:
        given = values(folder / role / "credentials.env")
        assert given["PENSTOCK_NATS_USER"] == role
        assert given["PENSTOCK_NATS_PASSWORD"] == users[f"{role.upper()}_PASSWORD"]
    for name in KEYS:
        given = values(folder / name / "credentials.env")
        key = {"accessKey": given["AWS_ACCESS_KEY_ID"], "secretKey": given["AWS_SECRET_ACCESS_KEY"]}
        assert keys[name]["credentials"] == [key]


def test_every_service_gets_the_secrets_that_the_servers_know(tmp_path: Path) -> None:
    assert set(make(tmp_path)) == FILES
    check_servers_and_services_agree(tmp_path)
    assert set(values(tmp_path / BUCKET_MAKER / "credentials.env")) == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    for role in ROLES:
        assert read_env_file(str(tmp_path / role / "credentials.env")).access_key


def test_no_two_secrets_are_the_same_and_each_has_32_random_bytes(tmp_path: Path) -> None:
    make(tmp_path / "one")
    make(tmp_path / "two")
    everything = [text for folder in ("one", "two") for text in texts(tmp_path / folder).values()]
    secrets = re.findall(r"\bk[0-9a-f]{64}\b", "".join(everything))
    users, keys = len(USERS) + 1, len(KEYS)
    assert len(set(secrets)) == 2 * (users + keys)


def test_files_are_private_to_their_owner_with_any_umask(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        (tmp_path / "set").mkdir(mode=0o777)
        (tmp_path / "set").chmod(0o755)
        for folder in {name.partition("/")[0] for name in FILES}:
            (tmp_path / "set" / folder).mkdir()
            (tmp_path / "set" / folder).chmod(0o755)
        make(tmp_path / "set")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE((tmp_path / "set" / name).stat().st_mode) for name in FILES}
    assert modes == {0o400}


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    make(tmp_path)
    before = {name: ((tmp_path / name).stat().st_ino, text) for name, text in texts(tmp_path).items()}
    assert make(tmp_path) == []
    assert {name: ((tmp_path / name).stat().st_ino, text) for name, text in texts(tmp_path).items()} == before


@pytest.mark.parametrize(("options", "cluster"), [({"cluster": "blue"}, "blue"), ({"hosts_clusters": True}, "*")])
def test_the_key_of_a_service_has_the_rights_of_its_row_in_the_table(
    tmp_path: Path, options: dict[str, Any], cluster: str
) -> None:
    make(tmp_path, bucket="records", prefix="a/path", **options)
    found = identities(tmp_path)
    assert found.pop(BUCKET_MAKER)["actions"] == ["Admin:records"]
    assert {name: (each["policyNames"], "actions" in each) for name, each in found.items()} == {
        role: ([role], False) for role in ROLES
    }
    policies = json.loads((tmp_path / "s3" / "s3.json").read_text())["policies"]
    place = Place("records", "a/path", cluster)
    assert {each["name"]: json.loads(each["content"]) for each in policies} == {
        role: policy(
            (*RIGHTS[role], *(HOSTING.get(role, ()) if cluster == "*" else ())), place, with_write_conditions=False
        )
        for role in ROLES
    }


def test_a_set_of_an_earlier_release_keeps_its_keys_and_gets_policies(tmp_path: Path) -> None:
    make(tmp_path)
    path = tmp_path / "s3" / "s3.json"
    new = path.read_text()
    old = [
        {"name": each["name"], "credentials": each["credentials"], "actions": []}
        for each in identities(tmp_path).values()
    ]
    path.chmod(0o600)
    path.write_text(json.dumps({"identities": old}))
    assert make(tmp_path) == ["s3/s3.json"]
    assert path.read_text() == new


def test_the_bucket_on_the_command_line_may_have_a_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["credentials", str(tmp_path / "set"), "--bucket", "records/a/path", "--clusters", "*"]) == 0
    text = (tmp_path / "set" / "s3" / "s3.json").read_text()
    assert "arn:aws:s3:::records/a/path/*/segments/*" in text
    assert 'Admin:records"' in text
    assert main(["credentials", str(tmp_path / "other"), "--bucket", "records/*"]) == 1
    assert "a path in a bucket is names of letters" in capsys.readouterr().err


def test_another_bucket_keeps_the_keys(tmp_path: Path) -> None:
    make(tmp_path, bucket="first")
    before = texts(tmp_path)
    assert make(tmp_path, bucket="second") == ["s3/s3.json"]
    assert texts(tmp_path) == before | {"s3/s3.json": before["s3/s3.json"].replace(":first", ":second")}


def test_another_cluster_changes_the_subjects_and_objects_and_no_secret(tmp_path: Path) -> None:
    make(tmp_path)
    before = texts(tmp_path)
    assert make(tmp_path, cluster="blue") == ["nats/accounts.conf", "s3/s3.json"]
    renamed = before["nats/accounts.conf"]
    for name in ("penstock.", "journal-", "landing-", "landing."):
        renamed = renamed.replace(f"{name}default", f"{name}blue")
    objects = before["s3/s3.json"].replace("default", "blue")
    assert texts(tmp_path) == before | {"nats/accounts.conf": renamed, "s3/s3.json": objects}
    assert ".*." not in renamed


@pytest.mark.parametrize("user", [*USERS, BUCKET_MAKER, "route"])
def test_a_rotation_replaces_the_secrets_of_one_user_everywhere_and_no_other(tmp_path: Path, user: str) -> None:
    make(tmp_path)
    before = texts(tmp_path)
    written = make(tmp_path, rotate=(user,))
    check_servers_and_services_agree(tmp_path)
    assert make(tmp_path) == []
    old, new = (set(re.findall(r"k[0-9a-f]{64}", "".join(each.values()))) for each in (before, texts(tmp_path)))
    assert len(old - new) == len(new - old) == (user in USERS) + (user in KEYS) + (user == "route")
    assert set(written) == {name for name, text in texts(tmp_path).items() if text != before[name]}


def test_the_users_of_many_clusters_may_do_in_each_what_those_of_one_may(tmp_path: Path) -> None:
    make(tmp_path)
    before = texts(tmp_path)
    assert main(["credentials", str(tmp_path), "--clusters", "a,b"]) == 0
    assert set(texts(tmp_path)) == FILES
    changed = {name for name, text in texts(tmp_path).items() if text != before[name]}
    assert changed == {"nats/accounts.conf", "s3/s3.json"}
    assert (tmp_path / "nats" / "accounts.conf").read_text() == accounts(ANY, ROLES)
    of_all, of_one = permissions(ANY), permissions("orders")
    for user in ROLES:
        for kind in ("publish", "subscribe"):
            patterns = getattr(of_all[user], kind)
            for subject in getattr(of_one[user], kind):
                assert any(covers(pattern, subject) for pattern in patterns), (user, subject)
    assert "$JS.API.STREAM.DELETE.*" in accounts(ANY, ["janitor"])
    assert "STREAM.DELETE" not in accounts("orders", ["janitor"])


def covers(pattern: str, subject: str) -> bool:
    """Whether a pattern of NATS allows all that another one allows."""
    parts, others = pattern.split("."), subject.split(".")
    if parts[-1] == ">":
        parts, others = parts[:-1], others[: len(parts) - 1]
    return len(parts) == len(others) and all(part in ("*", other) for part, other in zip(parts, others, strict=True))


def test_a_user_without_credentials_cannot_be_rotated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["credentials", str(tmp_path / "set"), "--rotate", "stranger"]) == 1
    assert capsys.readouterr().err.startswith("penstock: there are no credentials of 'stranger', only of gateway, ")
    assert not (tmp_path / "set").exists()


def test_other_nodes_of_nats_keep_the_password_between_them(tmp_path: Path) -> None:
    make(tmp_path)
    before = texts(tmp_path)
    password = values(tmp_path / "nats" / "route.env")["ROUTE_PASSWORD"]
    assert make(tmp_path, nats_nodes=("a.example", "127.0.0.1:7000", "[::1]", "[::1]:7001")) == ["nats/route.env"]
    routes = json.loads(values(tmp_path / "nats" / "route.env")["ROUTES"])
    hosts = ["a.example:6222", "127.0.0.1:7000", "[::1]:6222", "[::1]:7001"]
    assert routes == [f"nats://route:{password}@{host}" for host in hosts]
    assert make(tmp_path) == ["nats/route.env"]
    assert texts(tmp_path) == before


def test_a_service_that_is_added_later_gets_new_secrets_and_the_others_keep_theirs(tmp_path: Path) -> None:
    make(tmp_path, roles=WITHOUT_CACHER)
    before = texts(tmp_path)
    assert make(tmp_path) == [
        "nats/credentials.env",
        "nats/accounts.conf",
        "s3/s3.json",
        "cacher/credentials.env",
    ]
    check_servers_and_services_agree(tmp_path)
    after = texts(tmp_path)
    for name in FILES - {"nats/credentials.env", "nats/accounts.conf", "s3/s3.json", "cacher/credentials.env"}:
        assert after[name] == before[name]


@pytest.mark.parametrize("lost", sorted(FILES))
def test_after_the_loss_of_any_file_servers_and_services_agree_after_the_next_run(tmp_path: Path, lost: str) -> None:
    make(tmp_path)
    (tmp_path / lost).unlink()
    assert lost in make(tmp_path)
    check_servers_and_services_agree(tmp_path)


def interrupt_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """End the run before its `step`th call that changes or syncs a file; returns a function that counts the calls."""
    steps = 0

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **options: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == step:
                raise Interrupted(name)
            return call(*arguments, **options)

        return instead

    for name in ("open", "fchmod", "fchown", "fsync", "replace"):
        monkeypatch.setattr(os, name, counted(name, getattr(os, name)))
    return lambda: steps


def test_a_run_interrupted_at_any_step_is_completed_and_keeps_every_secret_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files that a process could have read after the crash are the same after the next run."""
    with monkeypatch.context() as counting:
        count = interrupt_at(-1, counting)
        make(tmp_path / "complete", owner=os.getuid())
        steps = count()
    assert steps > 5 * len(FILES)
    for step in range(1, steps + 1):
        folder = tmp_path / str(step)
        with monkeypatch.context() as cutting, pytest.raises(Interrupted):
            interrupt_at(step, cutting)
            make(folder, owner=os.getuid())
        seen = {name: text for name, text in texts(folder).items() if name in FILES}
        make(folder, owner=os.getuid())
        check_servers_and_services_agree(folder)
        after = texts(folder)
        assert {name: after[name] for name in seen} == seen, f"step {step}"


def test_a_run_interrupted_while_a_service_is_added_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_without_cacher(folder: Path) -> dict[str, str]:
        make(folder, roles=WITHOUT_CACHER)
        return texts(folder)

    for step in range(1, 50):
        folder = tmp_path / str(step)
        before = start_without_cacher(folder)
        with monkeypatch.context() as cutting:
            interrupt_at(step, cutting)
            try:
                make(folder)
                break
            except Interrupted:
                pass
        make(folder)
        check_servers_and_services_agree(folder)
        kept = [f"{role}/credentials.env" for role in ROLES if role != "cacher"]
        assert {name: texts(folder)[name] for name in kept} == {name: before[name] for name in kept}
    assert step > 10


def test_two_runs_at_once_leave_one_set(tmp_path: Path) -> None:
    runs = [threading.Thread(target=make, args=(tmp_path,)) for _ in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    check_servers_and_services_agree(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nats/credentials.env", "GATEWAY_PASSWORD=short\n"),
        ("nats/credentials.env", "GATEWAY_PASSWORD=\n"),
        ("nats/credentials.env", "GATEWAY_PASSWORD\n"),
        ("nats/route.env", "ROUTE_PASSWORD=k12\n"),
        ("s3/s3.json", "{"),
        ("s3/s3.json", '{"identities": [{"name": "gateway", "credentials": [], "actions": []}]}'),
        ("s3/s3.json", '{"identities": [{"name": "x", "credentials": [{"accessKey": "x"}], "actions": []}]}'),
    ],
)
def test_a_damaged_file_is_named_and_left_as_it_is(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(text)
    with pytest.raises(Invalid, match=re.escape(f"{tmp_path / name}")):
        make(tmp_path)
    assert texts(tmp_path) == {name: text}


def test_the_command_prints_the_names_of_its_files_and_never_a_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["credentials", str(tmp_path)]) == 0
    first = capsys.readouterr().out
    assert first.startswith(f"credentials in {tmp_path}: wrote nats/credentials.env, ")
    assert main(["credentials", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"credentials in {tmp_path}: complete\n"
    assert not re.search(r"k[0-9a-f]{64}", first)


@pytest.mark.parametrize("bucket", ["", "ab", "UPPER/with-path", "a b c"])
def test_an_impossible_bucket_name_is_rejected(tmp_path: Path, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["credentials", str(tmp_path / "set"), "--bucket", bucket]) == 1
    assert capsys.readouterr().err.startswith("penstock: a bucket name is ")
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("nodes", ["", "nats-1,", "nats://nats-1:6222", "user@nats-1", "nats-1:port", "a b", 'a"b'])
def test_an_impossible_node_is_rejected(tmp_path: Path, nodes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["credentials", str(tmp_path / "set"), "--nats-nodes", nodes]) == 1
    assert capsys.readouterr().err.startswith("penstock: a nats node is HOST or HOST:PORT, with commas ")
    assert not (tmp_path / "set").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["credentials", str(tmp_path / "file")]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"penstock: cannot store credentials in {tmp_path}/file")
    assert printed.count("\n") == 1


def test_owners_are_set_and_repaired_by_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls to the kernel are recorded instead of made: the test's user may not change owners."""
    given: dict[str, int] = {}
    monkeypatch.setattr(os, "fchown", lambda file, uid, _gid: given.update({os.readlink(f"/proc/self/fd/{file}"): uid}))
    make(tmp_path, owner=OTHER_UID, s3_owner=OTHER_UID + 1)
    made = {str(Path(name).relative_to(tmp_path)): uid for name, uid in given.items()}
    services = {f"{name}/.credentials.env.new": OTHER_UID for name in [*ROLES, BUCKET_MAKER]}
    assert made == services | {"s3/.s3.json.new": OTHER_UID + 1}
    before = texts(tmp_path)
    assert set(make(tmp_path, owner=OTHER_UID)) == {f"{name}/credentials.env" for name in [*ROLES, BUCKET_MAKER]}
    assert texts(tmp_path) == before


def test_a_file_that_others_can_read_is_made_private_again(tmp_path: Path) -> None:
    make(tmp_path)
    before = texts(tmp_path)
    (tmp_path / "gateway" / "credentials.env").chmod(0o644)
    assert make(tmp_path) == ["gateway/credentials.env"]
    assert stat.S_IMODE((tmp_path / "gateway" / "credentials.env").stat().st_mode) == 0o400
    assert texts(tmp_path) == before


def test_a_nats_server_reads_the_passwords_as_texts(tmp_path: Path) -> None:
    make(tmp_path)
    settings = tmp_path / "nats.conf"
    settings.write_text(f'jetstream {{ store_dir: "{tmp_path}" }}\ninclude "nats/accounts.conf"\n')
    checked = subprocess.run(
        [find_nats_server(), "--config", str(settings), "-t"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
