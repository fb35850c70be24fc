//! What parity in place would cost, beside the log-structured one: a model that makes the requests, over the same servers.
//!
//! Every block has a home: stripes of `k` blocks and their parity, which takes turns. What is written goes into a journal
//! first, flushed, which is an array of the present engine on the front of the same servers; so nothing that was flushed is
//! overwritten before its successor is safe. When half of the journal is full all of it goes home: whole stripes without a
//! read, others with the old block and the old parity, or with the rest of the stripe, whichever is less. The checksums of
//! the homes, four bytes for each, are blocks with homes of their own: held by the client, and journaled before they go there.
//! The model has neither recovery nor losses: it gives the requests of the best case, and is kind to parity in place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use steadfast_media::Medium;
use steadfast_remote::array::{Array, ArrayOptions, BLOCK, Call, CreateOptions, Fleet, Policy};
use steadfast_remote::client::Ask;

use super::counting::{Count, Counting};
use super::{Places, SIZE, array, small_writes};

/// Bytes of each server that the journal has: a sixteenth.
const JOURNAL: usize = SIZE / 16;
/// Checksums in a block.
const SUMS: u64 = BLOCK as u64 / 4;
/// Stripes that are under way at once.
const STRIPES: usize = 64;

struct InPlace {
    fleet: Arc<Counting>,
    journal: Array<Arc<Counting>>,
    /// Blocks that the journal has room for.
    room: u64,
    /// Where it goes on.
    at: u64,
    /// In the journal and not at home.
    away: BTreeMap<u64, Vec<u8>>,
    data: u64,
    /// Blocks of the medium; those of checksums are behind them.
    blocks: u64,
}

impl InPlace {
    fn new(servers: usize) -> InPlace {
        let fleet = Arc::new(Counting::new(servers, SIZE, JOURNAL));
        let create = CreateOptions { policy: Policy::Parity, uuid: [6; 16], spares: 0 };
        let journal = Array::create(fleet.clone(), &create, ArrayOptions::default()).unwrap();
        let room = journal.geometry().size / BLOCK as u64;
        let data = servers as u64 - 1;
        let homes = (SIZE - JOURNAL) as u64 / BLOCK as u64 * data;
        InPlace { fleet, journal, room, at: 0, away: BTreeMap::new(), data, blocks: homes - homes / SUMS - 1 }
    }

    /// Which server has a block of a stripe, and which has its parity for `place` = `k`.
    fn server(&self, stripe: u64, place: u64) -> usize {
        ((stripe + place) % (self.data + 1)) as usize
    }

    fn offset(&self, stripe: u64) -> u64 {
        JOURNAL as u64 + stripe * BLOCK as u64
    }

    /// Blocks from `first` on are taken in and flushed.
    fn write(&mut self, first: u64, bytes: &[u8]) {
        let most = (self.room / 4).max(1) as usize * BLOCK;
        let mut block = first;
        for piece in bytes.chunks(most) {
            self.note(piece);
            for bytes in piece.chunks(BLOCK) {
                self.away.insert(block, bytes.to_vec());
                block += 1;
            }
            if self.at >= self.room / 2 {
                self.go_home();
            }
        }
    }

    /// In the journal, flushed.
    fn note(&mut self, bytes: &[u8]) {
        self.journal.write(self.at * BLOCK as u64, bytes).unwrap();
        self.journal.flush().unwrap();
        self.at += (bytes.len() / BLOCK) as u64;
    }

    fn go_home(&mut self) {
        // Their contents do not matter to what is counted: the model makes the numbers of blocks into them.
        let sums: BTreeSet<u64> = self.away.keys().map(|block| self.blocks + block / SUMS).collect();
        for sum in sums {
            let bytes = [sum as u8 ^ 0x55; BLOCK];
            self.note(&bytes);
            self.away.insert(sum, bytes.to_vec());
        }
        let mut stripes: BTreeMap<u64, BTreeMap<u64, Vec<u8>>> = BTreeMap::new();
        for (block, bytes) in std::mem::take(&mut self.away) {
            stripes.entry(block / self.data).or_default().insert(block % self.data, bytes);
        }
        let stripes: Vec<_> = stripes.into_iter().collect();
        stripes.chunks(STRIPES).for_each(|part| self.write_stripes(part));
        let servers = self.data as usize + 1;
        let mut flushes: Vec<Call<'_>> =
            (0..servers).map(|server| Call::new(server, 0, Ask::Flush)).collect();
        self.fleet.round(&mut flushes, 0);
        self.journal.discard(0, self.at * BLOCK as u64).unwrap();
        self.at = 0;
    }

    fn write_stripes(&self, stripes: &[(u64, BTreeMap<u64, Vec<u8>>)]) {
        // What has to be read of each stripe: the old blocks and the parity, or the other blocks.
        let mut wanted = Vec::new();
        for (stripe, new) in stripes {
            let others: Vec<u64> = (0..self.data).filter(|place| !new.contains_key(place)).collect();
            let places = match others.len() <= new.len() {
                true => others,
                false => new.keys().copied().chain([self.data]).collect(),
            };
            wanted.extend(places.into_iter().map(|place| (*stripe, place, vec![0; BLOCK])));
        }
        let mut reads: Vec<Call<'_>> = wanted
            .iter_mut()
            .map(|(stripe, place, bytes)| {
                Call::new(self.server(*stripe, *place), self.offset(*stripe), Ask::Read(bytes))
            })
            .collect();
        if !reads.is_empty() {
            self.fleet.round(&mut reads, 0);
        }
        drop(reads);
        let mut writes = Vec::new();
        for (stripe, new) in stripes {
            // New blocks, and either the rest of the stripe or the old ones and their parity, add up to the new parity.
            let mut parity = vec![0; BLOCK];
            let read = wanted.iter().filter(|(of, ..)| of == stripe).map(|(.., bytes)| bytes);
            for bytes in read.chain(new.values()) {
                parity.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
            }
            writes.extend(new.iter().map(|(place, bytes)| (*stripe, *place, bytes.clone())));
            writes.push((*stripe, self.data, parity));
        }
        let pieces: Vec<[&[u8]; 1]> = writes.iter().map(|(.., bytes)| [&bytes[..]]).collect();
        let mut calls: Vec<Call<'_>> = writes
            .iter()
            .zip(&pieces)
            .map(|((stripe, place, _), pieces)| {
                Call::new(self.server(*stripe, *place), self.offset(*stripe), Ask::Write(pieces, false))
            })
            .collect();
        self.fleet.round(&mut calls, 0);
    }

    /// All blocks are at home, and every stripe adds up.
    fn check(&self, truth: &[u8]) {
        let (servers, mut found) = (self.data as usize + 1, vec![0; BLOCK]);
        for stripe in 0..self.blocks / self.data {
            let mut sum = vec![0; BLOCK];
            for place in 0..servers as u64 {
                let mut calls =
                    [Call::new(self.server(stripe, place), self.offset(stripe), Ask::Read(&mut found))];
                self.fleet.round(&mut calls, 0);
                sum.iter_mut().zip(&found).for_each(|(sum, byte)| *sum ^= byte);
                if place < self.data {
                    let byte = truth[(stripe * self.data + place) as usize];
                    assert!(found.iter().all(|found| *found == byte), "stripe {stripe}, block {place}");
                }
            }
            assert!(sum.iter().all(|byte| *byte == 0), "stripe {stripe} does not add up");
        }
    }
}

/// As [`small_writes`].
fn small_writes_in_place(servers: usize, hot: u64, percent: u64) -> (f64, f64, f64) {
    let mut array = InPlace::new(servers);
    let used = array.blocks * percent / 100;
    let mut places = Places::new(used, hot);
    let mut truth = vec![1_u8; array.blocks as usize];
    array.write(0, &vec![1; array.blocks as usize * BLOCK]);
    array.go_home();
    array.fleet.take();
    let writes = 2 * used;
    for write in 0..writes {
        let block = places.next();
        truth[block as usize] = write as u8;
        array.write(block, &[write as u8; BLOCK]);
    }
    array.go_home();
    let count = array.fleet.take();
    array.check(&truth);
    per_byte(count, writes)
}

fn per_byte(count: Count, blocks: u64) -> (f64, f64, f64) {
    let bytes = (blocks * BLOCK as u64) as f64;
    (count.written as f64 / bytes, count.read as f64 / bytes, count.rounds as f64 / blocks as f64)
}

/// Everything twice, in pieces of 1 MiB with a flush behind each: the second time is counted.
fn large_writes(servers: usize) -> [(f64, f64, f64); 2] {
    const PIECE: usize = 1 << 20;
    let (fleet, log, blocks) = array(Policy::Parity, servers, 16 << 20);
    let mut home = InPlace::new(servers);
    let mut truth = vec![0; home.blocks as usize];
    for turn in 1..=2 {
        fleet.take();
        home.fleet.take();
        for at in (0..blocks as usize * BLOCK).step_by(PIECE) {
            let piece = vec![turn; PIECE.min(blocks as usize * BLOCK - at)];
            log.write(at as u64, &piece).unwrap();
            log.flush().unwrap();
        }
        for at in (0..home.blocks as usize * BLOCK).step_by(PIECE) {
            home.write((at / BLOCK) as u64, &vec![turn; PIECE.min(home.blocks as usize * BLOCK - at)]);
        }
        home.go_home();
        truth.fill(turn);
    }
    let counts = [per_byte(fleet.take(), blocks), per_byte(home.fleet.take(), home.blocks)];
    home.check(&truth);
    counts
}

#[test]
fn what_parity_in_place_would_cost() {
    println!("| servers | written | log: sent | read | rounds | in place: sent | read | rounds |");
    println!("|---|---|---:|---:|---:|---:|---:|---:|");
    let row = |servers: usize, what: &str, log: (f64, f64, f64), home: (f64, f64, f64)| {
        println!(
            "| {servers} | {what} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
            log.0, log.1, log.2, home.0, home.1, home.2
        );
    };
    for servers in [3, 5] {
        for (hot, percent, what) in
            [(0, 100, "anywhere"), (9, 100, "mostly a twentieth"), (0, 50, "anywhere, half full")]
        {
            let (sent, read, rounds) = small_writes(Policy::Parity, servers, 16 << 20, hot, percent);
            row(
                servers,
                what,
                (sent, read, rounds as f64 / 100.0),
                small_writes_in_place(servers, hot, percent),
            );
        }
        let [log, home] = large_writes(servers);
        row(servers, "1 MiB after the other", log, home);
        let redundancy = servers as f64 / (servers as f64 - 1.0);
        // Everything twice, and the log once.
        assert!(home.0 > 2.0 * redundancy && log.0 < 1.2 * redundancy, "{servers}: {log:?}, {home:?}");
    }
}
