//! The bandwidth of arrays without a file system or FUSE, by policy: sequential writes of 1 MiB
//! with a flush at the end, and reads. For comparison, the same run sends raw requests of the same
//! size to the same servers with the same client. Prints Markdown.
//!
//! Raw requests overwrite the same memory of the servers repeatedly. Two more kinds of raw writes
//! show the limits of the machine. *Fresh* writes go to unused memory; *whole* writes send every
//! server as many bytes as the policy does.
//!
//! `cargo run --release -p steadfast-remote --example bandwidth [MIB [ROUNDS [POLICY]]]`. Servers,
//! client and other programs share the machine. The meaningful figure is the array's share of the
//! raw bandwidth, after redundancy. Shares are medians over all rounds; each round measures both
//! sides in turn, because the speed of a machine varies.

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
    let only: Option<Policy> = std::env::args().nth(3).map(|text| text.parse()).transpose()?;
    println!(
        "| policy | raw write MB/s | fresh | whole | write | of what is left | of whole | raw read MB/s | read | of raw |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let policies = [
        (Policy::None, 2),
        (Policy::Mirror, 2),
        (Policy::Parity, 3),
        (Policy::Erasure { data: 2, parity: 2 }, 4),
    ];
    for (policy, servers) in
        policies.into_iter().filter(|(policy, _)| only.is_none_or(|only| only == *policy))
    {
        let (data, parity) = policy.shards(servers)?;
        let rates = measure(policy, servers, mib, rounds)?;
        let [raw_write, fresh, whole, write, raw_read, read] =
            rates.each_ref().map(|rates| median(rates.clone()));
        let share = |part: usize, of: usize| {
            median(rates[part].iter().zip(&rates[of]).map(|(part, of)| 100.0 * part / of).collect())
        };
        let redundancy = (data + parity) as f64 / data as f64;
        println!(
            "| {policy} on {servers} | {raw_write:.0} | {fresh:.0} | {whole:.0} | {write:.0} | {:.0} % | {:.0} % | {raw_read:.0} | {read:.0} | {:.0} % |",
            redundancy * share(3, 0),
            share(3, 2),
            share(5, 4),
        );
    }
    Ok(())
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(0.0)
}

/// Megabytes a second in each round: raw writes, raw writes to fresh memory, raw writes with the
/// bytes of the policy, writes, raw reads, reads.
fn measure(policy: Policy, count: usize, mib: usize, rounds: u64) -> Result<[Vec<f64>; 6], Failed> {
    let size = (mib as u64) << 22;
    // As much as a round writes to a server.
    let part = (mib * PIECE / count) as u64;
    let quota = size.max((mib * PIECE) as u64 + rounds * part);
    let (data, _) = policy.shards(count)?;
    let lend = || -> Result<Server, Failed> {
        let options = PoolOptions {
            limit: 2 * quota,
            quota,
            lease: None,
            names_max: 2,
            granules: GranuleSize::Small,
        };
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
    let options =
        ArrayOptions { patience_ms: PATIENCE_MS, hedge_ms: PATIENCE_MS, ..ArrayOptions::default() };
    let create = CreateOptions { policy, uuid: [1; 16], spares: 0 };
    let array = Array::create(fleet("array"), &create, options)?;
    let raw = fleet("raw");
    let (written, mut piece) = (vec![7_u8; PIECE], vec![0_u8; PIECE]);
    let rate = |begun: Instant| (mib * PIECE) as f64 / begun.elapsed().as_secs_f64() / 1e6;
    let mut rates: [Vec<f64>; 6] = Default::default();
    let place = |at: usize| (at * PIECE / count) as u64;
    let shares: Vec<&[u8]> = written.chunks_exact((PIECE / count) & !511).take(count).collect();
    let wholes = vec![&written[..PIECE / data]; count];
    // The first round allocates the memory.
    for round in 0..=rounds {
        let mut one = [0.0; 6];
        let begun = Instant::now();
        (0..mib).try_for_each(|at| write(&raw, &shares, place(at)))?;
        one[0] = rate(begun);
        let begun = Instant::now();
        (0..mib).try_for_each(|at| write(&raw, &wholes, (at * PIECE / data) as u64))?;
        one[2] = rate(begun);
        let begun = Instant::now();
        (0..mib).try_for_each(|at| array.write((at * PIECE) as u64, &written))?;
        array.flush()?;
        one[3] = rate(begun);
        let begun = Instant::now();
        (0..mib).try_for_each(|at| read(&raw, count, place(at), &mut piece))?;
        one[4] = rate(begun);
        let begun = Instant::now();
        (0..mib).try_for_each(|at| array.read((at * PIECE) as u64, &mut piece))?;
        one[5] = rate(begun);
        if piece != written {
            return Err("what was read is not what was written".into());
        }
        if round > 0 {
            rates.iter_mut().zip(one).for_each(|(rates, one)| rates.push(one));
        }
    }
    rates[1].clear();
    for round in 0..rounds {
        let start = (mib * PIECE) as u64 + round * part;
        let begun = Instant::now();
        (0..mib).try_for_each(|at| write(&raw, &shares, start + place(at)))?;
        rates[1].push(rate(begun));
    }
    Ok(rates)
}

fn done(fleet: &TcpFleet, calls: &mut [Call<'_>]) -> Result<(), Failed> {
    fleet.round(calls, PATIENCE_MS);
    let answered = calls.iter().all(|call| call.outcome == Outcome::Done);
    if answered { Ok(()) } else { Err("a server did not answer".into()) }
}

/// Writes one share to each server.
fn write(fleet: &TcpFleet, shares: &[&[u8]], offset: u64) -> Result<(), Failed> {
    let pieces: Vec<[&[u8]; 1]> = shares.iter().map(|share| [*share]).collect();
    let asks = pieces.iter().enumerate();
    let mut calls: Vec<Call<'_>> = asks
        .map(|(server, share)| Call::new(server, offset & !511, Ask::Write(share, false)))
        .collect();
    done(fleet, &mut calls)
}

/// Reads an equal share from each server.
fn read(fleet: &TcpFleet, count: usize, offset: u64, piece: &mut [u8]) -> Result<(), Failed> {
    let share = (PIECE / count) & !511;
    let shares = piece.chunks_exact_mut(share).take(count).enumerate();
    let mut calls: Vec<Call<'_>> =
        shares.map(|(server, share)| Call::new(server, offset & !511, Ask::Read(share))).collect();
    done(fleet, &mut calls)
}
