//! Key-value stores: redb and SQLite, with values of 100 bytes under numbers.
//!
//! An update is durable when it returns, as on Steadfast after `transact`.

use std::fs;
use std::path::Path;

use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase, TableDefinition};
use rusqlite::Connection;
use steadfast_count::Result;
use steadfast_count::region::{Counts, Region};
use steadfast_count::volume::Random;
use steadfast_media::MediumCounters;

pub const REDB: &str = "redb";
pub const SQLITE: &str = "SQLite";
/// Rows of the table.
pub const OPERATIONS: [&str; 2] = ["put-100-transact", "read-100"];

const VALUE: usize = 100;
const REPEATS: u64 = 500;
const WARM: u64 = 100;
const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("files");

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn measure(
    operation: &str,
    count: u64,
    mut put: impl FnMut(u64, &[u8]) -> Result<()>,
    mut get: impl FnMut(u64) -> Result<usize>,
) -> Result<Counts> {
    let requests = MediumCounters::default;
    let mut region = Region::new(&requests, false);
    let (mut random, mut value) = (Random::new(1), [0; VALUE]);
    for number in 0..WARM + REPEATS {
        if number == WARM {
            region.start();
        }
        let key = random.below(count);
        random.fill(&mut value);
        match operation {
            "put-100-transact" => region.run(1, || put(key, &value))?,
            "read-100" => assert_eq!(region.run(1, || get(key))?, VALUE, "the value is found"),
            _ => return Err(format!("{operation}: no such operation")),
        }
    }
    Ok(region.counts())
}

fn redb_put(database: &Database, key: u64, value: &[u8]) -> Result<()> {
    let transaction = database.begin_write().map_err(told)?;
    {
        let mut table = transaction.open_table(TABLE).map_err(told)?;
        table.insert(key, value).map_err(told)?;
    }
    transaction.commit().map_err(told)
}

fn redb_get(database: &Database, key: u64) -> Result<usize> {
    let transaction = database.begin_read().map_err(told)?;
    let table = transaction.open_table(TABLE).map_err(told)?;
    let value = table.get(key).map_err(told)?;
    Ok(value.map_or(0, |value| value.value().len()))
}

fn open_redb(image: &Path) -> Result<Database> {
    let file = fs::File::options().read(true).write(true).create(true).truncate(false).open(image);
    let backend = FileBackend::new(file.map_err(told)?).map_err(told)?;
    Database::builder().create_with_backend(backend).map_err(told)
}

pub fn prepare_redb(count: u64, image: &Path) -> Result<()> {
    let _ = fs::remove_file(image);
    let database = open_redb(image)?;
    let mut random = Random::new(count);
    let transaction = database.begin_write().map_err(told)?;
    {
        let mut table = transaction.open_table(TABLE).map_err(told)?;
        let mut value = [0; VALUE];
        for key in 0..count {
            random.fill(&mut value);
            table.insert(key, &value[..]).map_err(told)?;
        }
    }
    transaction.commit().map_err(told)
}

/// On a copy of the file, which is the same in each run.
pub fn work_redb(operation: &str, count: u64, image: &Path) -> Result<Counts> {
    let copy = image.with_extension(operation);
    fs::copy(image, &copy).map_err(told)?;
    let database = open_redb(&copy)?;
    let counts = measure(
        operation,
        count,
        |key, value| redb_put(&database, key, value),
        |key| redb_get(&database, key),
    );
    drop(database);
    fs::remove_file(&copy).map_err(told)?;
    counts
}

/// A write-ahead log that is synced at each commit.
fn open_sqlite(image: &Path) -> Result<Connection> {
    let connection = Connection::open(image).map_err(told)?;
    connection
        .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        .map_err(told)?;
    Ok(connection)
}

pub fn prepare_sqlite(count: u64, image: &Path) -> Result<()> {
    let _ = fs::remove_file(image);
    let mut connection = open_sqlite(image)?;
    let mut random = Random::new(count);
    let transaction = connection.transaction().map_err(told)?;
    transaction
        .execute("CREATE TABLE files (key INTEGER PRIMARY KEY, value BLOB)", ())
        .map_err(told)?;
    let mut value = [0; VALUE];
    for key in 0..count {
        random.fill(&mut value);
        transaction
            .prepare("INSERT INTO files VALUES (?, ?)")
            .and_then(|mut insert| insert.execute((key as i64, &value[..])))
            .map_err(told)?;
    }
    transaction.commit().map_err(told)
}

pub fn work_sqlite(operation: &str, count: u64, image: &Path) -> Result<Counts> {
    let copy = image.with_extension(operation);
    fs::copy(image, &copy).map_err(told)?;
    let connection = open_sqlite(&copy)?;
    let mut put = connection.prepare("UPDATE files SET value = ?2 WHERE key = ?1").map_err(told)?;
    let mut get = connection.prepare("SELECT value FROM files WHERE key = ?1").map_err(told)?;
    let counts = measure(
        operation,
        count,
        |key, value| put.execute((key as i64, value)).map(|_| ()).map_err(told),
        |key| {
            get.query_row((key as i64,), |row| Ok(row.get_ref(0)?.as_blob()?.len())).map_err(told)
        },
    );
    drop((put, get));
    drop(connection);
    fs::remove_file(&copy).map_err(told)?;
    counts
}
