"""Who writes: sessions that insert, update, delete, truncate, roll back, all at once.

The tables have what a follower gets wrong most easily: `accounts` keys that change, nulls and text
that needs quoting; `documents` large values which an update does not touch, with the default
identity; `parts` the same with keys that change, and REPLICA IDENTITY FULL; `visits` truncates.
"""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Final

from examples.postgres.protocol import PostgresError, ServerError
from examples.postgres.replication import Connection
from examples.postgres.server import ORDINARY, Postgres

TABLES: Final = ("accounts", "documents", "parts", "visits")

SCHEMA: Final = """
CREATE TABLE accounts (id bigint PRIMARY KEY, owner text, balance numeric(20, 4), since timestamptz,
                       tags text[], raw bytea, ok boolean, "Odd ""name" double precision);
CREATE TABLE documents (id integer PRIMARY KEY, title text, body text);
CREATE TABLE parts (region text, number integer, body text, note text,
                    PRIMARY KEY (region, number));
CREATE TABLE visits (id bigint PRIMARY KEY, page text);
ALTER TABLE documents ALTER body SET STORAGE EXTERNAL;
ALTER TABLE parts ALTER body SET STORAGE EXTERNAL;
ALTER TABLE parts REPLICA IDENTITY FULL;
CREATE PUBLICATION logservice FOR TABLE accounts, documents, parts, visits;
INSERT INTO accounts (id, owner, balance)
    SELECT i, 'first ' || i, i * 1.5 FROM generate_series(1, 300) i;
INSERT INTO documents
    SELECT i, 'first', repeat(md5(i::text), 200) FROM generate_series(1, 40) i;
INSERT INTO parts
    SELECT 'north', i, repeat(md5(i::text), 200), NULL FROM generate_series(1, 40) i;
"""

NEW_COLUMN: Final = "ALTER TABLE accounts ADD COLUMN branch text"

PAUSE_S: Final = 0.02
"""Between two transactions of a session: what is shown is not how fast PostgreSQL is."""

EXPECTED: Final = frozenset({"23505", "40P01", "40001"})
"""Two sessions chose the same key, or waited for each other: a transaction that is rolled back."""


class Session:
    """One of them: random transactions."""

    def __init__(self, chance: random.Random, number: int) -> None:
        self._chance = chance
        self._number = number
        self.new_column = False

    def transaction(self) -> str:
        """SQL: several statements, and how it ends."""
        statements = [self._statement() for _ in range(self._chance.randint(1, 6))]
        if self._chance.random() < 0.2:
            undone = [self._statement(), self._statement()]
            statements += ["SAVEPOINT s", *undone, "ROLLBACK TO SAVEPOINT s", self._statement()]
        end = "ROLLBACK" if self._chance.random() < 0.2 else "COMMIT"
        return ";".join(["BEGIN", *statements, end])

    def _statement(self) -> str:
        chance = self._chance
        key, other = chance.randint(1, 400), chance.randint(1, 400)
        word = chance.choice(
            ["NULL", "''", "'a''b \\ \"c\"'", f"'{chance.random()}'", "E'\\u00fc\\n'"]
        )
        page = chance.randrange(1 << 40)
        small = key % 60
        choices = [
            "INSERT INTO accounts (id, owner, balance, since, tags, raw, ok)"
            f" VALUES ({key}, {word}, {other}.25, to_timestamp({page} / 1000.0),"
            f" ARRAY[{word}, 'x,y'], '\\x00ff', {key % 2 == 0})"
            " ON CONFLICT (id) DO UPDATE SET owner = EXCLUDED.owner, balance = NULL",
            f'UPDATE accounts SET owner = {word}, "Odd ""name" = {other} / 3.0 WHERE id = {key}',
            f"UPDATE accounts SET id = {other} WHERE id = {key}"
            f" AND NOT EXISTS (SELECT FROM accounts WHERE id = {other})",
            f"DELETE FROM accounts WHERE id = {key}",
            f"UPDATE documents SET title = {word} WHERE id = {small}",
            f"UPDATE documents SET body = repeat(md5('{other}'), 200) WHERE id = {small}",
            f"INSERT INTO documents VALUES ({small}, {word}, repeat(md5('{page}'), 150))"
            " ON CONFLICT (id) DO UPDATE SET title = EXCLUDED.title",
            f"DELETE FROM documents WHERE id = {small}",
            f"UPDATE parts SET note = {word} WHERE number = {small}",
            f"UPDATE parts SET region = 'south{key}' WHERE number = {small} AND region = 'north'",
            f"INSERT INTO parts VALUES ('north', {small}, repeat(md5('{page}'), 150), {word})"
            " ON CONFLICT DO NOTHING",
            f"INSERT INTO visits SELECT {page} + i, {word} FROM generate_series(1, 20) i"
            " ON CONFLICT DO NOTHING",
        ]
        if chance.random() < 0.01:
            return "TRUNCATE visits"
        if self.new_column and chance.random() < 0.3:
            return f"UPDATE accounts SET branch = {word} WHERE id = {key}"
        return chance.choice(choices)


class Load(threading.Thread):
    """Some sessions, until `end`. A server that goes away is waited for."""

    def __init__(self, server: Postgres, seed: int, sessions: int = 3) -> None:
        super().__init__(name="load", daemon=True)
        self._server = server
        self._sessions = [
            Session(random.Random(f"{seed}/{number}"), number) for number in range(sessions)
        ]
        self._over = threading.Event()
        self._pause = threading.Event()
        self.transactions = 0
        self.rolled_back = 0
        self.failed: BaseException | None = None

    def run(self) -> None:
        """Until `end`."""
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001 - `end` raises it
            self.failed = error

    def know_the_new_column(self) -> None:
        """It is there now."""
        for session in self._sessions:
            session.new_column = True

    def end(self) -> None:
        """Stop; returns when nothing is under way. Raises what ended it."""
        self._over.set()
        if self.ident is not None:
            self.join()
        if self.failed is not None:
            raise self.failed

    async def _run(self) -> None:
        await asyncio.gather(*(self._one(session) for session in self._sessions))

    async def _one(self, session: Session) -> None:
        while not self._over.is_set():
            try:
                connection = await Connection.connect(self._server.address, ORDINARY)
                try:
                    while not self._over.is_set():
                        await self._transaction(connection, session.transaction())
                        await asyncio.sleep(PAUSE_S)
                finally:
                    connection.close()
            except ServerError as error:
                if not error.code.startswith("57P"):  # it shuts down, starts, or recovers
                    raise
                await asyncio.sleep(0.1)
            except PostgresError:
                await asyncio.sleep(0.1)

    async def _transaction(self, connection: Connection, sql: str) -> None:
        try:
            await connection.query(sql)
        except ServerError as error:
            if error.code not in EXPECTED:
                raise
            await connection.query("ROLLBACK")
            self.rolled_back += 1
            return
        self.transactions += 1
        self.rolled_back += sql.endswith("ROLLBACK")
