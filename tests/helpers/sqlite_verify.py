"""Verifies a database that sqlite_writer.py has written.

Usage: sqlite_verify.py DATABASE ACKNOWLEDGED

The database is intact. Its rows are 1 to n without a gap, each with its content, and n is at least
the last acknowledged row.
"""

import sqlite3
import sys

from sqlite_writer import content


def main():
    path, acknowledged = sys.argv[1:]
    # The last line may be incomplete, because the writer was ended.
    with open(acknowledged) as log:
        numbers = [int(line) for line in log if line.endswith("\n")]
    last = max(numbers, default=0)
    database = sqlite3.connect(path)
    verdict = database.execute("PRAGMA integrity_check").fetchall()
    if verdict != [("ok",)]:
        sys.exit(f"integrity_check: {verdict[:5]}")
    rows = database.execute("SELECT number, content FROM rows ORDER BY number").fetchall()
    if [number for number, _ in rows] != list(range(1, len(rows) + 1)):
        sys.exit("rows are not 1 to n")
    wrong = [number for number, text in rows if text != content(number)]
    if wrong:
        sys.exit(f"wrong content in rows {wrong[:10]}")
    if len(rows) < last:
        sys.exit(f"row {last} was acknowledged, but the last one is {len(rows)}")
    print(f"{len(rows)} rows, {last} acknowledged")


if __name__ == "__main__":
    main()
