//! The server with its own client and with misbehaving clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast_media::sim::{Action, Fault};
use steadfast_media::{ErrorClass, MediumOperation, MemoryMedium, Random};
use steadfast_remote::client::{Ask, Endpoint, Link, LinkError, Question};
use steadfast_remote::export::{
    Catalogue, GranuleSize, MediumExport, MemoryPool, PoolOptions, Single,
};
use steadfast_remote::protocol::{OptionKind, option_request, wire};
use steadfast_remote::server::{Limits, Server, ServerOptions};

const PATIENCE: Duration = Duration::from_secs(10);

fn pool(limit: u64) -> Arc<MemoryPool> {
    Arc::new(MemoryPool::new(PoolOptions {
        limit,
        quota: limit,
        lease: None,
        names_max: 4,
        granules: GranuleSize::Small,
    }))
}

fn start(catalogue: Arc<dyn Catalogue>) -> Server {
    Server::start("127.0.0.1:0".parse().unwrap(), catalogue, ServerOptions::default()).unwrap()
}

fn endpoint(server: &Server) -> Endpoint {
    Endpoint { address: server.address().to_string(), export: String::new(), tls: None }
}

fn ask(link: &mut Link, offset: u64, ask: Ask<'_>) -> Result<(), u32> {
    let mut questions = [Question::new(offset, ask)];
    link.send(&questions, PATIENCE).unwrap();
    link.receive(&mut questions, PATIENCE).unwrap();
    questions[0].answer.unwrap()
}

#[test]
fn bytes_come_back_over_every_connection() {
    let server = start(pool(64 << 20));
    let mut links: Vec<Link> =
        (0..4).map(|_| Link::connect(&endpoint(&server), PATIENCE).unwrap()).collect();
    assert!(links[0].info().has(wire::TRANSMIT_CAN_MULTI_CONN | wire::TRANSMIT_SEND_FUA));
    let data: Vec<u8> = (0..3_000_001_u32).map(|index| ((index * 31) >> 3) as u8).collect();
    ask(&mut links[0], 12_345, Ask::Write(&[&data[..100], &data[100..]], true)).unwrap();
    ask(&mut links[0], 0, Ask::Flush).unwrap();
    for link in &mut links {
        let mut found = vec![1; data.len() + 200_000];
        ask(link, 12_345, Ask::Read(&mut found)).unwrap();
        assert!(found[..data.len()] == data[..]);
        assert!(found[data.len()..].iter().all(|byte| *byte == 0));
    }
    ask(&mut links[1], 0, Ask::Trim(64 << 20)).unwrap();
    let mut found = [1; 16];
    ask(&mut links[2], 70_000, Ask::Read(&mut found)).unwrap();
    assert_eq!(found, [0; 16]);
}

#[test]
fn many_requests_in_flight_are_answered() {
    let server = start(pool(64 << 20));
    let mut link = Link::connect(&endpoint(&server), PATIENCE).unwrap();
    let pages: Vec<[u8; 512]> = (0..200_u8).map(|index| [index; 512]).collect();
    let pieces: Vec<[&[u8]; 1]> = pages.iter().map(|page| [&page[..]]).collect();
    let mut writes: Vec<Question> = pieces
        .iter()
        .enumerate()
        .map(|(index, piece)| Question::new(index as u64 * 100_000, Ask::Write(piece, false)))
        .collect();
    link.send(&writes, PATIENCE).unwrap();
    link.receive(&mut writes, PATIENCE).unwrap();
    assert!(writes.iter().all(|write| write.answer == Some(Ok(()))));
    let mut buffers = vec![[0; 512]; 200];
    let mut reads: Vec<Question> = buffers
        .iter_mut()
        .enumerate()
        .map(|(index, buffer)| Question::new(index as u64 * 100_000, Ask::Read(buffer)))
        .collect();
    link.send(&reads, PATIENCE).unwrap();
    link.receive(&mut reads, PATIENCE).unwrap();
    assert!(buffers == pages);
}

#[test]
fn refusals_name_their_reason_and_the_connection_goes_on() {
    let server = start(pool(1 << 20));
    let mut link = Link::connect(&endpoint(&server), PATIENCE).unwrap();
    assert_eq!(ask(&mut link, 1 << 20, Ask::Write(&[&[1; 10]], false)), Err(wire::ENOSPC));
    assert_eq!(ask(&mut link, (1 << 20) - 5, Ask::Read(&mut [0; 10])), Err(wire::EINVAL));
    assert_eq!(ask(&mut link, u64::MAX, Ask::Read(&mut [0; 10])), Err(wire::EINVAL));
    assert_eq!(ask(&mut link, 0, Ask::Trim(0)), Err(wire::EINVAL));
    ask(&mut link, (1 << 20) - 10, Ask::Write(&[&[1; 10]], false)).unwrap();

    let medium = Arc::new(MemoryMedium::new(1 << 20, 512).unwrap());
    let server = start(Arc::new(Single::new("disk", Arc::new(MediumExport::new(medium, true)))));
    let mut link = Link::connect(&endpoint(&server), PATIENCE).unwrap();
    assert_eq!(ask(&mut link, 0, Ask::Write(&[&[1; 512]], false)), Err(wire::EPERM));
    assert_eq!(ask(&mut link, 1, Ask::Read(&mut [1; 512])), Err(wire::EINVAL));
    let unknown = Endpoint { export: "other".into(), ..endpoint(&server) };
    assert!(matches!(Link::connect(&unknown, PATIENCE), Err(LinkError::NoExport)));
}

#[test]
fn failures_of_what_is_below_are_told() {
    let sim = Arc::new(steadfast_media::SimMedium::new(steadfast_media::SimOptions::disk(4 << 20)));
    let server =
        start(Arc::new(Single::new("disk", Arc::new(MediumExport::new(sim.clone(), false)))));
    let mut link = Link::connect(&endpoint(&server), PATIENCE).unwrap();
    for length in [512, 1 << 20] {
        sim.arm(Fault::new(Action::Fail(ErrorClass::Permanent)).on(MediumOperation::Read));
        assert_eq!(ask(&mut link, 0, Ask::Read(&mut vec![0; length])), Err(wire::EIO), "{length}");
        ask(&mut link, 0, Ask::Read(&mut vec![0; length])).unwrap();
    }
    sim.arm(Fault::new(Action::Fail(ErrorClass::Permanent)).on(MediumOperation::Flush));
    assert_eq!(ask(&mut link, 0, Ask::Flush), Err(wire::EIO));
}

/// A raw connection of a misbehaving client.
fn raw(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    stream.write_all(&[0, 0, 0, 3]).unwrap();
    stream
}

/// Whether the server closes the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.take(1 << 20).read_to_end(&mut rest) {
        Ok(count) => count < 1 << 20,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn hostile_lengths_end_the_connection_and_nothing_else() {
    let server = start(pool(1 << 20));
    let option = |number: u32, length: u32| {
        let mut bytes = wire::IHAVEOPT.to_be_bytes().to_vec();
        bytes.extend_from_slice(&number.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes
    };
    for number in [wire::OPT_EXPORT_NAME, wire::OPT_GO, 77] {
        let mut stream = raw(&server);
        stream.write_all(&option(number, u32::MAX)).unwrap();
        assert!(is_closed(&mut stream), "{number}");
    }
    // A write of 4 GiB, and a request without the magic number.
    for tail in [u32::MAX, 0] {
        let mut stream = raw(&server);
        stream.write_all(&option_request(OptionKind::ExportName, b"")).unwrap();
        stream.read_exact(&mut [0; 10]).unwrap();
        let mut request = [0; 28];
        if tail != 0 {
            request[0..4].copy_from_slice(&wire::REQUEST_MAGIC.to_be_bytes());
            request[7] = 1;
        }
        request[24..28].copy_from_slice(&tail.to_be_bytes());
        stream.write_all(&request).unwrap();
        assert!(is_closed(&mut stream));
    }
    // Noise from a seed: the server must survive it.
    let mut random = Random::new(1);
    for _ in 0..50 {
        let mut stream = raw(&server);
        let mut noise = [0; 300];
        random.fill(&mut noise);
        stream.write_all(&noise).unwrap();
        assert!(is_closed(&mut stream));
    }
    assert!(Link::connect(&endpoint(&server), PATIENCE).is_ok());
}

#[test]
fn floods_and_slow_clients_are_bounded() {
    let limits = Limits {
        connections_max: 4,
        // The seats below must not become free before the fifth client comes, on a busy machine.
        negotiation_time: Duration::from_secs(5),
        stall_time: Duration::from_millis(600),
        ..Limits::default()
    };
    let options = ServerOptions { tls: None, limits };
    let server = Server::start("127.0.0.1:0".parse().unwrap(), pool(1 << 20), options).unwrap();
    // Four silent clients take all seats; others find none.
    let mut silent: Vec<TcpStream> = (0..4).map(|_| raw(&server)).collect();
    let mut fifth = TcpStream::connect(server.address()).unwrap();
    fifth.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(is_closed(&mut fifth));
    let deadline = Instant::now() + PATIENCE;
    // It is counted after it was closed.
    while server.refused() == 0 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
    // Their negotiation time runs out.
    assert!(silent.iter_mut().all(is_closed));
    let deadline = Instant::now() + PATIENCE;
    while server.connections() > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    // A client begins a write and does not continue.
    let mut slow = raw(&server);
    slow.write_all(&option_request(OptionKind::ExportName, b"")).unwrap();
    slow.read_exact(&mut [0; 10]).unwrap();
    let mut request = [0; 28];
    request[0..4].copy_from_slice(&wire::REQUEST_MAGIC.to_be_bytes());
    request[7] = 1;
    request[26] = 16;
    slow.write_all(&request).unwrap();
    assert!(is_closed(&mut slow));
    // A client that is idle between requests stays connected.
    let mut link = Link::connect(&endpoint(&server), PATIENCE).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    ask(&mut link, 0, Ask::Flush).unwrap();
}

#[test]
fn a_client_that_trickles_is_not_longer_in_negotiation_than_another() {
    let limits = Limits { negotiation_time: Duration::from_millis(600), ..Limits::default() };
    let options = ServerOptions { tls: None, limits };
    let server = Server::start("127.0.0.1:0".parse().unwrap(), pool(1 << 20), options).unwrap();
    let mut slow = raw(&server);
    let mut bytes = wire::IHAVEOPT.to_be_bytes().to_vec();
    bytes.extend_from_slice(&77_u32.to_be_bytes());
    bytes.extend_from_slice(&60_000_u32.to_be_bytes());
    slow.write_all(&bytes).unwrap();
    // One byte at a time, each well within the time limit for a stall.
    let started = Instant::now();
    let mut sent = 0;
    while slow.write_all(&[0]).is_ok() {
        sent += 1;
        assert!(started.elapsed() < PATIENCE, "still there after {sent} bytes");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(server.connections() == 0);
}

/// A server that asks for TLS. It has no certificate, so no handshake ends.
fn tls_server(limits: Limits) -> Server {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()));
    let options = ServerOptions { tls: Some(Arc::new(config)), limits };
    Server::start("127.0.0.1:0".parse().unwrap(), pool(1 << 20), options).unwrap()
}

/// A connection on which the server waits for the first message of the TLS handshake.
fn before_the_handshake(server: &Server) -> TcpStream {
    let mut stream = raw(server);
    stream.write_all(&option_request(OptionKind::StartTls, b"")).unwrap();
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[12..16], wire::REP_ACK.to_be_bytes());
    stream
}

/// The time of the handshake is a part of the time of the negotiation, whether the client is silent
/// in it or trickles.
#[test]
fn a_client_that_does_not_finish_the_handshake_is_closed_in_time() {
    let time = Duration::from_millis(600);
    // Without that limit the server would wait for longer than this test.
    let limits = Limits { negotiation_time: time, stall_time: PATIENCE * 6, ..Limits::default() };
    let server = tls_server(limits);
    let started = Instant::now();
    let mut silent = before_the_handshake(&server);
    assert!(is_closed(&mut silent));
    assert!(started.elapsed() >= time && started.elapsed() < PATIENCE, "{:?}", started.elapsed());

    // The head of a handshake message of 512 bytes, then one byte at a time.
    let started = Instant::now();
    let mut slow = before_the_handshake(&server);
    slow.write_all(&[22, 3, 1, 2, 0]).unwrap();
    while slow.write_all(&[1]).is_ok() {
        assert!(started.elapsed() < PATIENCE, "the handshake has no end");
        std::thread::sleep(Duration::from_millis(20));
    }
    let deadline = Instant::now() + PATIENCE;
    while server.connections() > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn idle_connections_give_their_places_up() {
    let limits = Limits { connections_max: 4, idle_time: Duration::ZERO, ..Limits::default() };
    let options = ServerOptions { tls: None, limits };
    let server = Server::start("127.0.0.1:0".parse().unwrap(), pool(1 << 20), options).unwrap();
    // Four clients that have negotiated and send no request.
    let mut idle: Vec<Link> =
        (0..4).map(|_| Link::connect(&endpoint(&server), PATIENCE).unwrap()).collect();
    let started = Instant::now();
    let mut link = loop {
        // The server may not yet wait for the first request of the last client.
        match Link::connect(&endpoint(&server), PATIENCE) {
            Ok(link) => break link,
            Err(error) => assert!(started.elapsed() < PATIENCE, "no place: {error}"),
        }
    };
    ask(&mut link, 0, Ask::Write(&[&[1; 10]], false)).unwrap();
    // One of them has been closed, and the others work.
    let mut gone = 0;
    for link in &mut idle {
        let mut questions = [Question::new(0, Ask::Flush)];
        let done =
            link.send(&questions, PATIENCE).and_then(|()| link.receive(&mut questions, PATIENCE));
        gone += u32::from(done.is_err());
    }
    assert_eq!(gone, 1);
    assert!(server.connections() <= 4);
}
