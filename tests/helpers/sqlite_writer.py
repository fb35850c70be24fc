"""Writes to an SQLite database until it fails, and records each acknowledged row.

Usage: sqlite_writer.py DATABASE ACKNOWLEDGED wal|delete

Each row holds its number and a text derived from it, so that a reader can detect a wrong row. A row
is recorded after its transaction was acknowledged. The list of acknowledged rows is on another file
system.
"""

import errno
import hashlib
import os
import sqlite3
import sys


def content(number):
    """A few hundred to a few thousand characters that only depend on the number."""
    digest = hashlib.sha256(str(number).encode()).hexdigest()
    return digest * (1 + number % 40)


def connect(path, journal):
    database = sqlite3.connect(path, isolation_level=None, timeout=10)
    database.execute(f"PRAGMA journal_mode={journal}")
    # With a rollback journal, its removal is the commit; only EXTRA syncs the directory for it.
    database.execute("PRAGMA synchronous=" + ("FULL" if journal == "wal" else "EXTRA"))
    return database


def check_alive(path):
    """Makes a request that only the file system itself can answer.

    SQLite treats a directory that cannot be opened as synced. So if the daemon dies between the
    removal of the journal and the sync, COMMIT succeeds without an acknowledgement.
    """
    try:
        os.stat(f"{path}-{os.urandom(8).hex()}")
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def main():
    path, acknowledged, journal = sys.argv[1:]
    database = connect(path, journal)
    database.execute("CREATE TABLE IF NOT EXISTS rows "
                     "(number INTEGER PRIMARY KEY, content TEXT NOT NULL)")
    database.execute("CREATE INDEX IF NOT EXISTS by_content ON rows (content)")
    number = database.execute("SELECT coalesce(max(number), 0) FROM rows").fetchone()[0]
    with open(acknowledged, "a", buffering=1) as log:
        while True:
            number += 1
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO rows VALUES (?, ?)", (number, content(number)))
            if number % 5 == 0:
                # Also change old pages, not only append.
                database.execute("UPDATE rows SET content = content WHERE number = ?",
                                 (number // 2,))
            database.execute("COMMIT")
            check_alive(path)
            log.write(f"{number}\n")


if __name__ == "__main__":
    try:
        main()
    except (sqlite3.Error, OSError) as error:
        print(f"writer ends: {error}", file=sys.stderr)
        sys.exit(3)
