"""Each request to S3 has the parameters of encryption that its verb needs."""

from pathlib import Path

import pytest

from penstock.objectstore.s3_encryption import encryption_of

KEY = bytes(range(32))


def test_without_options_nothing_is_added() -> None:
    assert encryption_of({}).make == encryption_of({}).read == {}


@pytest.mark.parametrize(
    ("options", "make"),
    [
        ({"sse": "s3"}, {"ServerSideEncryption": "AES256"}),
        ({"sse": "kms"}, {"ServerSideEncryption": "aws:kms"}),
        ({"sse": "kms", "sse_kms_key": "arn:k"}, {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "arn:k"}),
    ],
)
def test_keys_of_the_server_are_named_when_an_object_is_made(options: dict[str, str], make: dict[str, str]) -> None:
    assert encryption_of(options).make == make
    assert not encryption_of(options).read


def test_our_key_goes_with_every_request(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    encryption = encryption_of({"sse": "customer", "sse_key_file": str(tmp_path / "key")})
    assert encryption.make == encryption.read == {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": KEY}
