//! SQLite transactions per second: many devices keep their state in this embedded database.
//!
//! One transaction inserts one row of [`ROW`] bytes and commits, with `synchronous=FULL`: the row
//! is durable when the commit returns. The test runs with two journals. `journal_mode=WAL` is a
//! write-ahead log: append and fsync. `journal_mode=DELETE` is a rollback journal, SQLite's
//! default: the old pages are saved in a file that is made, fsynced and deleted for each
//! transaction. All other settings are SQLite's defaults. At the end each row is compared, and
//! SQLite checks its own structure.

use rusqlite::Connection;

use super::content::Content;
use super::{Bench, TestSpec, Timed, Workload};
use crate::result::Unit;
use crate::{Outcome, Trouble};

/// Inserts into one table.
#[derive(Debug, Clone, Copy)]
pub struct Sqlite {
    /// Number of transactions with each journal.
    pub transactions: u64,
}

/// Bytes of data in a row.
const ROW: usize = 200;
/// A commit is durable when it returns; there is one table.
const SCHEMA: &str = "PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, data BLOB)";
/// SQLite's ways to make a transaction.
const JOURNALS: [&str; 2] = ["wal", "delete"];

impl Sqlite {
    fn spec(&self, journal: &str) -> TestSpec {
        TestSpec::new("sqlite", "transaction", Unit::OperationsPerSecond)
            .with_text("journal", journal)
            .with("transactions", self.transactions)
    }

    fn insert(&self, bench: &Bench<'_>, journal: &str) -> Outcome<Timed> {
        let Some(directory) = bench.files()?.directory() else {
            return Err(Trouble::Skip("SQLite needs a directory".into()));
        };
        let path = directory.join(format!("{journal}.db"));
        let content = Content::new(bench.seed, 0);
        let mut row = [0; ROW];
        let mut timed = Timed::default();
        let failed = |error: rusqlite::Error| Trouble::Tool {
            command: format!("SQLite ({journal})"),
            output: error.to_string(),
        };
        let database = Connection::open(&path).map_err(failed)?;
        let wanted = format!("PRAGMA journal_mode={journal}");
        let set: String = database.query_row(&wanted, [], |row| row.get(0)).map_err(failed)?;
        if set != journal {
            return Err(Trouble::Skip(format!("SQLite cannot use its journal '{journal}' here")));
        }
        database.execute_batch(SCHEMA).map_err(failed)?;
        let mut insert = database.prepare("INSERT INTO t VALUES(?1, ?2)").map_err(failed)?;
        for number in 0..self.transactions {
            bench.check_stop()?;
            content.fill(&mut row, number, 0, 1);
            timed.operation(|| insert.execute((number as i64, &row[..]))).map_err(failed)?;
            timed.bytes += ROW as u64;
        }
        drop(insert);
        self.check(&database, &content).map_err(failed)??;
        timed.verification.bytes += timed.bytes;
        timed.verification.items += self.transactions;
        Ok(timed)
    }

    /// Checks that every row exists with its data, and no other row.
    fn check(&self, database: &Connection, content: &Content) -> rusqlite::Result<Outcome> {
        let mut expected = [0; ROW];
        let mut select = database.prepare("SELECT id, data FROM t ORDER BY id")?;
        let mut rows = select.query([])?;
        let mut number = 0;
        while let Some(row) = rows.next()? {
            let (id, data): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
            if id != number as i64 {
                return Ok(Err(Trouble::Wrong {
                    what: format!("row of SQLite: {id} instead of {number}"),
                }));
            }
            if let Err(trouble) = content.compare(&data, &mut expected, number, 0, 1) {
                return Ok(Err(trouble));
            }
            number += 1;
        }
        let sound: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        Ok(if number != self.transactions {
            Err(Trouble::Wrong {
                what: format!("number of rows: {number} instead of {}", self.transactions),
            })
        } else if sound != "ok" {
            Err(Trouble::Wrong { what: format!("database: {sound}") })
        } else {
            Ok(())
        })
    }
}

impl Workload for Sqlite {
    fn label(&self) -> String {
        format!("sqlite transactions={}", self.transactions)
    }

    fn tests(&self) -> Vec<TestSpec> {
        JOURNALS.map(|journal| self.spec(journal)).into()
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        for journal in JOURNALS {
            let before = bench.counters();
            let timed = self.insert(bench, journal);
            let asked = timed.as_ref().map_or(0, |timed| timed.bytes);
            bench.enter_or_skip(&self.spec(journal), timed)?;
            bench.add_costs(before, asked);
        }
        Ok(())
    }
}
