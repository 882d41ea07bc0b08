"""bucket: the files of an archive in a bucket of S3, or of a server that speaks its protocol.

Theory of operation. An object of S3 is there when all of it is, and durable when the call returns.
So `put` collects the file on this machine first and then uploads it through `pyarrow.fs`; an upload
that breaks leaves nothing. Put-if-absent is a conditional write (``If-None-Match: *``), which
`pyarrow.fs` does not have, so that one request is made here: a PUT that is signed by Signature
Version 4. After 412 the content is read back: if it is what was to be written, an earlier attempt
whose answer was lost wrote it, because no two rows are the same. A server that does not know the
condition would overwrite. So the first thing that an archiver does is to try it (`check`), and it
does not start there.

What is read in any order is fetched to a file first, in one stream, and no more of it than its row
says.

INV-ARCHIVE-FILES (`folder`) holds as far as the server keeps S3's promises: read-after-write
consistency of objects and lists, and conditional writes.

References: Amazon S3 API Reference, PutObject and "Authenticating Requests: Using the Authorization
Header (AWS Signature Version 4)"; Amazon S3 User Guide, "How to prevent object overwrites with
conditional writes".
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import BinaryIO, Final, cast
from urllib.parse import quote

from logservice_wire.archive_name import FileRefused, read_at_most
from logservice_wire.errors import InvalidArgument
from pyarrow import fs

from logservice import bounds

_ABSENT: Final = {"if-none-match": "*"}
_FORBIDDEN_OVERWRITE: Final = (409, 412)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Of S3. Never shown."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Credentials:
        """From AWS's variables. Raises InvalidArgument."""
        try:
            return cls(
                environment["AWS_ACCESS_KEY_ID"],
                environment["AWS_SECRET_ACCESS_KEY"],
                environment.get("AWS_SESSION_TOKEN", ""),
            )
        except KeyError as error:
            raise InvalidArgument(
                f"the environment has no {error.args[0]}", field="archive.bucket"
            ) from None


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket, and the prefix of the archive's names in it. endpoint: host:port of a server that
    is not Amazon's. plaintext: without TLS, for tests and networks of one's own.
    """

    bucket: str
    prefix: str
    region: str
    endpoint: str = ""
    plaintext: bool = False

    @property
    def host(self) -> str:
        """Where requests go; the bucket is in the path."""
        return self.endpoint or f"s3.{self.region}.amazonaws.com"


class Bucket:
    """`Files` in a bucket, which exists."""

    def __init__(self, place: Place, credentials: Credentials) -> None:
        """No request is made yet."""
        self._place = place
        self._credentials = credentials
        self._fs = fs.S3FileSystem(
            access_key=credentials.access_key,
            secret_key=credentials.secret_key,
            session_token=credentials.session_token or None,
            region=place.region,
            scheme="http" if place.plaintext else "https",
            endpoint_override=place.endpoint or None,
            connect_timeout=bounds.ARCHIVE_REQUEST_S,
            request_timeout=bounds.ARCHIVE_REQUEST_S,
        )

    def check(self) -> None:
        """Raises InvalidArgument where a conditional write overwrites."""
        name = f"probe-{secrets.token_hex(8)}"
        try:
            if not self.put_if_absent(name, b"1") or self.put_if_absent(name, b"2"):
                raise InvalidArgument(
                    "the server does not keep put-if-absent (If-None-Match), so two archivers "
                    "could overwrite each other",
                    field="archive.bucket",
                )
        finally:
            self.remove(name)

    @contextlib.contextmanager
    def put(self, name: str) -> Iterator[BinaryIO]:
        with tempfile.TemporaryFile() as spool:
            yield spool
            spool.seek(0)
            with self._fs.open_output_stream(self._path(name)) as upload:
                shutil.copyfileobj(spool, upload, bounds.ARCHIVE_UPLOAD_BYTES)

    def put_if_absent(self, name: str, content: bytes) -> bool:
        status, answer = self._request(name, content)
        if status == http.client.OK:
            return True
        if status in _FORBIDDEN_OVERWRITE:
            try:
                return self.read(name, len(content)) == content
            except FileRefused:
                return False
            except FileNotFoundError as error:
                # 409: somebody else's write or removal was under way.
                raise OSError(f"{name}: {status} of a name that is free") from error
        raise OSError(f"{name}: {status} {answer[:200]!r}")

    def read(self, name: str, bytes_max: int) -> bytes:
        with self._fs.open_input_stream(self._path(name)) as file:
            return read_at_most(file, bytes_max, name)

    def open(self, name: str, size: int) -> BinaryIO:
        spool = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            with self._fs.open_input_stream(self._path(name)) as file:
                left = size + 1
                while left and (chunk := file.read(min(left, bounds.ARCHIVE_UPLOAD_BYTES))):
                    spool.write(chunk)
                    left -= len(chunk)
            if left != 1:
                raise FileRefused(f"{name} has not the {size} bytes that were archived")
            spool.seek(0)
        except BaseException:
            spool.close()
            raise
        return cast(BinaryIO, spool)

    def names(self, under: str) -> list[str]:
        found = self._fs.get_file_info(fs.FileSelector(self._path(under), allow_not_found=True))
        return sorted(one.base_name for one in found)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self._place.bucket, self._place.prefix, name) if part)

    def _request(self, name: str, content: bytes) -> tuple[int, bytes]:
        """PUT unless the name exists. Raises OSError."""
        path = "/" + quote(self._path(name))
        kind = http.client.HTTPConnection if self._place.plaintext else http.client.HTTPSConnection
        connection = kind(self._place.host, timeout=bounds.ARCHIVE_REQUEST_S)
        headers = signed(
            "PUT",
            path,
            {"host": self._place.host, **_ABSENT},
            hashlib.sha256(content).hexdigest(),
            self._place.region,
            self._credentials,
            datetime.now(UTC),
        )
        try:
            connection.request("PUT", path, body=content, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            raise OSError(f"{self._place.host}: {error!r}") from error
        finally:
            connection.close()


def signed(
    method: str,
    path: str,
    headers: Mapping[str, str],
    content_sha256: str,
    region: str,
    credentials: Credentials,
    now: datetime,
) -> dict[str, str]:
    """`headers` (lower-case names) with those of Signature Version 4; all of them are signed.
    `path` is quoted, and there is no query.
    """
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    given = {**headers, "x-amz-content-sha256": content_sha256, "x-amz-date": stamp}
    if credentials.session_token:
        given["x-amz-security-token"] = credentials.session_token
    names = ";".join(sorted(given))
    lines = "".join(f"{name}:{given[name].strip()}\n" for name in sorted(given))
    canonical = f"{method}\n{path}\n\n{lines}\n{names}\n{content_sha256}"
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashed}"
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    given["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, "
        f"SignedHeaders={names}, Signature={signature}"
    )
    return given
