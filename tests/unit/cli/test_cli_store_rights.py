"""The policies of the store are valid, name every service, and give away no right to delete or replace."""

import json
import re
from fnmatch import fnmatchcase
from typing import Any

import pytest

from penstock.cli.credentials.store_rights import HOSTING, RIGHTS, Place, Right, Verb, policy
from penstock.cli.credentials.wanted import ADMIN, JOURNAL, ROLES
from penstock.segment.keys import cluster_record_key, journal_archive_key, segment_key, snapshot_key
from tests.testkit.docs.__main__ import DOCS

PLACE = Place("records", "tests/store", "orders")
SEGMENTS = [segment_key("tests/store", "orders", level, bytes(range(16))) for level in (0, 1, 2)]
OTHERS = [
    snapshot_key("tests/store", "orders", 7),
    journal_archive_key("tests/store", "orders", 1, 7),
    "tests/store/orders/journal-identity",
    "tests/store/encryption",
    cluster_record_key("tests/store", "orders"),
]
DOCUMENTS = {name: policy(rights, PLACE) for name, rights in RIGHTS.items()}
HOSTED = {name: policy((*RIGHTS[name], *more), Place("records", "tests/store", "*")) for name, more in HOSTING.items()}
EVERY = DOCUMENTS | {f"hosted {name}": document for name, document in HOSTED.items()}


def may(document: dict[str, Any], action: str, key: str) -> bool:
    """Whether the document allows the action, perhaps under a condition, and does not deny it."""
    effects = {
        each["Effect"]
        for each in document["Statement"]
        if each["Action"] == action
        for resource in each["Resource"]
        if fnmatchcase(f"arn:aws:s3:::records/{key}", resource)
    }
    return effects == {"Allow"}


def who_may(action: str, key: str) -> set[str]:
    return {name for name, document in DOCUMENTS.items() if may(document, action, key)}


def test_every_service_has_rights_and_only_consoles_have_none() -> None:
    assert RIGHTS.keys() == set(ROLES)
    assert [name for name, rights in RIGHTS.items() if not rights] == ["console"]


def test_an_agent_may_do_what_its_roles_may() -> None:
    assert RIGHTS["cacher"] == RIGHTS["gateway"]
    assert set(RIGHTS["agent"]) == {*RIGHTS["gateway"], *RIGHTS["flusher"]}


@pytest.mark.parametrize("name", EVERY)
def test_a_document_is_valid(name: str) -> None:
    document = EVERY[name]
    assert json.loads(json.dumps(document)) == document
    assert document["Version"] == "2012-10-17"
    sids = [each["Sid"] for each in document["Statement"]]
    assert len(set(sids)) == len(sids)
    for each in document["Statement"]:
        assert each.keys() - {"Condition"} == {"Sid", "Effect", "Action", "Resource"}
        assert each["Effect"] in ("Allow", "Deny")
        assert re.fullmatch(r"[A-Za-z0-9]+", each["Sid"])
        if each["Action"] in ("s3:ListBucket", "s3:ListBucketMultipartUploads"):
            assert each["Resource"] == "arn:aws:s3:::records"
        else:
            assert each["Action"].endswith(("Object", "Upload"))
            assert all(one.startswith("arn:aws:s3:::records/tests/store/") for one in each["Resource"])
        assert ("Condition" in each) == (each["Action"] in ("s3:ListBucket", "s3:PutObject"))


def test_only_janitors_delete_segments() -> None:
    for key in SEGMENTS:
        assert who_may("s3:DeleteObject", key) == {"janitor"}


def test_sequencers_delete_snapshots_and_archives_and_administrators_only_their_test_objects() -> None:
    for key in OTHERS[:2]:
        assert who_may("s3:DeleteObject", key) == {"sequencer"}
    for key in OTHERS[2:]:
        assert who_may("s3:DeleteObject", key) == set()
    assert who_may("s3:DeleteObject", "tests/store/orders/doctor/x") == {ADMIN}


def test_flushers_and_compactors_write_their_own_levels() -> None:
    assert who_may("s3:PutObject", SEGMENTS[0]) == {"flusher", "agent"}
    assert who_may("s3:PutObject", SEGMENTS[1]) == {"compactor", JOURNAL}
    assert who_may("s3:PutObject", SEGMENTS[2]) == {"compactor"}


def test_no_segment_can_be_replaced() -> None:
    for rights in (*RIGHTS.values(), *HOSTING.values()):
        assert not [each for each in rights if "segments" in each.key and Verb.REPLACE in each.verbs]


def test_no_right_reaches_another_cluster() -> None:
    for key in (*SEGMENTS, *OTHERS[:3], OTHERS[4]):
        other = key.replace("/orders", "/payments")
        for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"):
            assert who_may(action, other) == set()


def test_a_janitor_of_all_clusters_never_deletes_the_registry() -> None:
    assert may(HOSTED["janitor"], "s3:DeleteObject", OTHERS[0])
    assert not may(HOSTED["janitor"], "s3:DeleteObject", OTHERS[4])


def test_a_store_without_a_prefix_has_no_slash_before_its_keys() -> None:
    [opening, _, read] = policy(RIGHTS["gateway"], Place("records", "", "orders"))["Statement"]
    assert opening["Condition"]["StringNotLike"] == {"s3:prefix": "?*"}
    assert read["Resource"] == ["arn:aws:s3:::records/encryption", "arn:aws:s3:::records/orders/segments/*"]


def test_rights_without_conditions_are_for_servers_that_do_not_know_them() -> None:
    [statement] = policy([Right("x", (Verb.CREATE,))], PLACE, with_write_conditions=False)["Statement"]
    assert "Condition" not in statement


def test_the_documents_of_the_page_are_those_of_the_table() -> None:
    page = (DOCS / "operating" / "policies.md").read_text()
    documents = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    for name, rights in RIGHTS.items():
        assert not rights or policy(rights, Place()) in documents, name
    for name, rights in HOSTING.items():
        assert policy(rights, Place()) in documents, name
