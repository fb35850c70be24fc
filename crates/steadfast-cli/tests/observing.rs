//! `top`, `map` and the metrics of a mount, for users and for programs.

mod common;
#[path = "common/exposition.rs"]
mod exposition;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use common::{Scratch, can_mount, succeeded, wait_for};
use serde_json::Value;

fn start(arguments: &str) -> Option<Scratch> {
    can_mount().then(|| {
        let scratch = Scratch::new();
        scratch.volume("64M");
        let mnt = scratch.mounted(arguments);
        for number in 0..30 {
            let path = mnt.join(format!("f{number}"));
            fs::write(&path, vec![7; number * 3000]).unwrap();
            fs::File::open(&path).unwrap().sync_all().unwrap();
        }
        scratch
    })
}

fn get(mut stream: impl Read + Write, request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), page.to_owned())
}

fn scrape(stream: impl Read + Write) -> exposition::Page {
    let (head, page) =
        get(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", page.len())), "{head}");
    exposition::parse(&page).unwrap()
}

fn legend_bytes(text: &str) -> Vec<u64> {
    let rows = text
        .lines()
        .filter_map(|line| line.split_once(" bytes ")?.0.rsplit(' ').next()?.parse().ok());
    rows.collect()
}

#[test]
fn a_frame_and_a_document() {
    let Some(scratch) = start("") else { return };
    let words = ["top", "--once", "--interval", "100ms", "mnt"];
    let text = succeeded(&scratch.command(&words).env_remove("COLUMNS").output().unwrap(), "top");
    assert_eq!(text.lines().count(), 24);
    assert!(text.lines().all(|line| line.chars().count() <= 80) && !text.contains('\x1b'));
    for expected in
        ["disk.img on ", "create", "sync", "p99.9", "checkpoints", "almost free", "flushes"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    // COLUMNS sets the width, also without a terminal.
    for (columns, width) in [("120", 81..=120), ("50", 41..=50), ("nothing", 51..=80)] {
        let words = ["top", "--once", "--interval", "100ms", "mnt"];
        let output = scratch.command(&words).env("COLUMNS", columns).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(width.contains(&widest), "{columns}: {widest} in\n{text}");
    }
    // The image's path names the same volume.
    let report: Value = serde_json::from_str(&scratch.ok("top --json disk.img")).unwrap();
    assert_eq!(report["operations"]["create"]["count"], 30);
    assert!(
        report["operations"]["sync"]["p99_ns"].as_u64()
            >= report["operations"]["sync"]["p50_ns"].as_u64()
    );
    assert!(report["transaction_points"].as_u64() >= Some(29), "{report}");
    let space = report["space"].as_object().unwrap();
    let total: u64 = space.values().map(|bytes| bytes.as_u64().unwrap()).sum();
    assert_eq!(total, 64 << 20);
    assert!(report["medium"]["flushes"].as_u64() > Some(0));
}

#[test]
fn metrics_on_a_port_and_on_a_socket() {
    let Some(scratch) = start("") else { return };
    scratch.ok("umount mnt");
    // A port that is free now; another process is unlikely to take it meanwhile.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mnt = scratch.mounted(&format!("-o metrics=127.0.0.1:{port}"));
    fs::write(mnt.join("new"), "x").unwrap();
    let address = ("127.0.0.1", port);
    wait_for("the operation to be counted", || {
        let page = scrape(TcpStream::connect(address).unwrap());
        page.value("steadfast_operation_duration_seconds_count", &[("op", "create")]) == Some(1.0)
    });
    let page = scrape(TcpStream::connect(address).unwrap());
    let total: f64 = page.samples("steadfast_space_bytes").map(|sample| sample.value).sum();
    assert_eq!(total, f64::from(64 << 20));
    let connect = || TcpStream::connect(address).unwrap();
    assert!(get(connect(), "GET / HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 404"));
    assert!(get(connect(), "PUT /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 405"));
    assert!(get(connect(), "nonsense\r\n\r\n").0.starts_with("HTTP/1.1 400"));
    assert!(get(connect(), &"x".repeat(5000)).0.starts_with("HTTP/1.1 431"));
    let (head, body) = get(connect(), "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && body.is_empty());
    // A second mount cannot use the port, so the mount fails.
    scratch.ok("mkfs --size 4M other.img");
    fs::create_dir(scratch.path("other")).unwrap();
    let line = scratch.fails(5, &format!("mount other.img other -o metrics=127.0.0.1:{port}"));
    assert!(line.contains("in use"), "{line}");
    // An open connection does not prevent the unmount.
    let silent = connect();
    scratch.ok("umount mnt");
    drop(silent);

    let socket = scratch.path("metrics.sock");
    scratch.mounted(&format!("-o metrics={}", socket.display()));
    let page = scrape(UnixStream::connect(&socket).unwrap());
    assert_eq!(page.value("steadfast_failed", &[]), Some(0.0));
    scratch.kill_daemon();
    scratch.ok("umount --quiet mnt");
    assert!(socket.exists(), "no process was left to remove it");
    scratch.mounted(&format!("-o metrics={}", socket.display()));
    scrape(UnixStream::connect(&socket).unwrap());
    scratch.ok("umount mnt");
    assert!(!socket.exists());
}

#[test]
fn maps_of_images_and_mounts_add_up() {
    let Some(scratch) = start("") else { return };
    let check = |target: &str| {
        let text = scratch.ok(&format!("map {target}"));
        assert!(!text.contains('\x1b'));
        let rows = legend_bytes(&text);
        assert_eq!(rows.len(), 9, "{text}");
        assert_eq!((rows[..8].iter().sum::<u64>(), rows[8]), (64 << 20, 64 << 20), "{text}");
        rows
    };
    check("mnt");
    scratch.ok("umount mnt");
    let rows = check("disk.img");
    let df: Value = serde_json::from_str(&scratch.ok("df --json disk.img")).unwrap();
    assert_eq!(rows[0] + rows[1] + rows[2], df[0]["used"].as_u64().unwrap());
    assert!(rows[0] > 0 && rows[1] > 0);
    let said = scratch.ok("map --svg map.svg disk.img");
    assert_eq!(said, "");
    let picture = fs::read_to_string(scratch.path("map.svg")).unwrap();
    assert!(
        picture.starts_with("<svg ")
            && picture.contains("disk.img")
            && picture.contains("almost free")
    );
    // The picture shows the same sizes.
    for bytes in rows {
        assert!(picture.contains(&format!(">{bytes} bytes<")), "{bytes}");
    }
}

#[test]
fn bad_calls_are_one_line() {
    let scratch = Scratch::new();
    scratch.volume("4M");
    scratch.write("text", b"no volume");
    fs::create_dir(scratch.path("dir")).unwrap();
    scratch.fails(8, "top disk.img");
    scratch.fails(3, "top dir");
    scratch.fails(1, "top nowhere");
    scratch.fails(2, "top --interval 1ms dir");
    scratch.fails(2, "top --once --json dir");
    scratch.fails(3, "map text");
    scratch.fails(3, "map dir");
    scratch.fails(1, "map nowhere");
    scratch.fails(1, "map --svg nowhere/map.svg disk.img");
    for (value, why) in [
        ("0.0.0.0:9633", "other machines"),
        ("192.168.0.1:9633", "other machines"),
        ("[::]:1", "other machines"),
        ("x.sock", "neither"),
        ("localhost:x", "neither"),
    ] {
        let line = scratch.fails(2, &format!("mount disk.img dir -o metrics={value}"));
        assert!(line.contains(why), "{line}");
    }
    scratch.fails(2, "mount disk.img dir -o metrics");
    if can_mount() {
        let line = scratch.fails(1, "mount disk.img dir -o metrics=/nowhere/at/all.sock");
        assert!(line.contains("metrics"), "{line}");
        assert!(!common::is_mounted(Path::new(&scratch.path("dir"))));
        let mnt = scratch.mounted("");
        // Standard output is not a terminal.
        let line = scratch.fails(2, "top mnt");
        assert!(line.contains("--once"), "{line}");
        scratch.kill_daemon();
        scratch.fails(8, "top --once mnt");
        scratch.fails(8, "map mnt");
        drop(mnt);
    }
}
