//! The bandwidth of arrays without a file system or FUSE: sequential writes of 1 MiB with a flush at the end, and reads, by
//! policy; beside raw requests of the same size to the same servers with the same client, in the same run. Prints Markdown.
//!
//! Raw requests overwrite the same memory of the servers again and again; *fresh* are raw writes to memory that nobody had
//! before.
//!
//! `cargo run --release -p steadfast-remote --example bandwidth [MIB [ROUNDS]]`. Servers, client and whatever else runs share
//! the machine; the figure that means something is the share of what the policy leaves of the raw requests.

use std::sync::Arc;
use std::time::Instant;

use steadfast_media::Medium;
use steadfast_remote::array::{Array, ArrayOptions, Call, CreateOptions, Fleet, Outcome, Policy};
use steadfast_remote::client::{Ask, Endpoint, FleetOptions, TcpFleet};
use steadfast_remote::export::{GranuleSize, MemoryPool, PoolOptions};
use steadfast_remote::server::{Server, ServerOptions};

type Failed = Box<dyn std::error::Error>;

const PIECE: usize = 1 << 20;
const ROUNDS: u64 = 5;
const PATIENCE_MS: u64 = 60_000;

fn main() -> Result<(), Failed> {
    let mib: usize = std::env::args().nth(1).map_or(Ok(128), |text| text.parse())?;
    let rounds: u64 = std::env::args().nth(2).map_or(Ok(ROUNDS), |text| text.parse())?;
    println!(
        "| policy | raw write, fresh MB/s | raw write MB/s | write | of what is left | raw read MB/s | read | of raw |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    let policies = [
        (Policy::None, 2),
        (Policy::Mirror, 2),
        (Policy::Parity, 3),
        (Policy::Erasure { data: 2, parity: 2 }, 4),
    ];
    for (policy, servers) in policies {
        let (data, parity) = policy.shards(servers)?;
        let [fresh, raw_write, write, raw_read, read] = measure(policy, servers, mib, rounds)?;
        let left = raw_write * data as f64 / (data + parity) as f64;
        println!(
            "| {policy} on {servers} | {fresh:.0} | {raw_write:.0} | {write:.0} | {:.0} % | {raw_read:.0} | {read:.0} | {:.0} % |",
            100.0 * write / left,
            100.0 * read / raw_read,
        );
    }
    Ok(())
}

/// Medians, megabytes a second: raw writes to fresh memory, raw writes, writes, raw reads, reads.
fn measure(policy: Policy, count: usize, mib: usize, rounds: u64) -> Result<[f64; 5], Failed> {
    let size = (mib as u64) << 22;
    // As much as a round writes to a server.
    let part = (mib * PIECE / count) as u64;
    let quota = size.max((rounds + 2) * part);
    let lend = || -> Result<Server, Failed> {
        let options =
            PoolOptions { limit: 2 * quota, quota, lease: None, names_max: 2, granules: GranuleSize::Small };
        let pool = Arc::new(MemoryPool::new(options));
        Ok(Server::start("127.0.0.1:0".parse()?, pool, ServerOptions::default())?)
    };
    let servers = (0..count).map(|_| lend()).collect::<Result<Vec<Server>, Failed>>()?;
    let fleet = |export: &str| {
        let place = |server: &Server| Endpoint {
            address: server.address().to_string(),
            export: export.to_owned(),
            tls: None,
        };
        TcpFleet::new(servers.iter().map(place).collect(), FleetOptions::default())
    };
    let options = ArrayOptions { patience_ms: PATIENCE_MS, hedge_ms: PATIENCE_MS, ..ArrayOptions::default() };
    let create = CreateOptions { policy, uuid: [1; 16], spares: 0 };
    let array = Array::create(fleet("array"), &create, options)?;
    let raw = fleet("raw");
    let mut piece = vec![7_u8; PIECE];
    let rate = |begun: Instant| (mib * PIECE) as f64 / begun.elapsed().as_secs_f64() / 1e6;
    let mut rates: [Vec<f64>; 5] = Default::default();
    let place = |at: usize| (at * PIECE / count) as u64;
    // The first round takes the memory.
    for round in 0..=rounds {
        let mut one = [0.0; 5];
        let begun = Instant::now();
        (0..mib).try_for_each(|at| asked(&raw, count, place(at), Err(&piece)))?;
        one[1] = rate(begun);
        let begun = Instant::now();
        (0..mib).try_for_each(|at| array.write((at * PIECE) as u64, &piece))?;
        array.flush()?;
        one[2] = rate(begun);
        let begun = Instant::now();
        for at in 0..mib {
            asked(&raw, count, place(at), Ok(&mut piece))?;
        }
        one[3] = rate(begun);
        let begun = Instant::now();
        (0..mib).try_for_each(|at| array.read((at * PIECE) as u64, &mut piece))?;
        one[4] = rate(begun);
        if round > 0 {
            rates.iter_mut().zip(one).skip(1).for_each(|(rates, one)| rates.push(one));
        }
    }
    for round in 1..=rounds {
        let begun = Instant::now();
        (0..mib).try_for_each(|at| asked(&raw, count, round * part + place(at), Err(&piece)))?;
        rates[0].push(rate(begun));
    }
    Ok(rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    }))
}

/// One piece, read or written, an equal share on each server.
fn asked(fleet: &TcpFleet, count: usize, offset: u64, piece: Result<&mut [u8], &[u8]>) -> Result<(), Failed> {
    let share = (PIECE / count) & !511;
    let offset = offset & !511;
    let done = |calls: &mut [Call<'_>]| {
        fleet.round(calls, PATIENCE_MS);
        calls.iter().all(|call| call.outcome == Outcome::Done)
    };
    let answered = match piece {
        Ok(buffer) => {
            let shares = buffer.chunks_exact_mut(share).take(count).enumerate();
            let mut calls: Vec<Call<'_>> =
                shares.map(|(server, share)| Call::new(server, offset, Ask::Read(share))).collect();
            done(&mut calls)
        }
        Err(bytes) => {
            let shares: Vec<[&[u8]; 1]> =
                bytes.chunks_exact(share).take(count).map(|share| [share]).collect();
            let mut calls: Vec<Call<'_>> = shares
                .iter()
                .enumerate()
                .map(|(server, share)| Call::new(server, offset, Ask::Write(share, false)))
                .collect();
            done(&mut calls)
        }
    };
    if answered { Ok(()) } else { Err("a server did not answer".into()) }
}
