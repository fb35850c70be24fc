//! What `steadfast serve` and `steadfast remote status` print.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use common::{Scratch, can_mount, signal};

/// A server that runs until it is dropped.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Server {
    /// Runs `steadfast serve` with these arguments, on a free port.
    fn start(scratch: &Scratch, arguments: &str) -> Server {
        let line = format!("serve {arguments} --listen 127.0.0.1:0");
        let mut command = scratch.command(&line.split(' ').collect::<Vec<_>>());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("steadfast runs");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Server { child, output }
    }

    /// The next line that it prints.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.strip_suffix('\n').expect("a whole line").to_owned()
    }

    /// The address in its first line, which begins with `serving` and `what`.
    fn address(&mut self, what: &str) -> String {
        let line = self.line();
        let address = line.strip_prefix(&format!("serving {what} on ")).expect(&line);
        assert!(address.starts_with("127.0.0.1:") && !address.ends_with(":0"), "{line}");
        address.to_owned()
    }

    /// Ends it by a signal; it must end in good order.
    fn end(mut self) {
        signal("TERM", self.child.id());
        assert_eq!(self.child.wait().expect("its end").code(), Some(0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_prints_the_uri_of_what_it_serves() {
    let scratch = Scratch::new();
    scratch.volume("16M");
    let mut server = Server::start(&scratch, "nbd disk.img");
    let address = server.address("disk.img");
    assert_eq!(server.line(), format!("URI nbd://{address}/disk.img"));
    server.end();
    // A file inside the volume is named by its path.
    let mut server = Server::start(&scratch, "nbd disk.img --file /disk --create 1M");
    let address = server.address("disk.img:/disk");
    assert_eq!(server.line(), format!("URI nbd://{address}//disk"));
    server.end();
    scratch.ok("check --quiet disk.img");
}

#[test]
fn the_status_of_an_array_shows_spares_and_times() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("witness")).unwrap();
    let mut servers = [(); 3].map(|()| Server::start(&scratch, "memory --size 16M"));
    let [a, b, c] = servers.each_mut().map(|server| server.address("16 MiB of memory"));
    let words = format!("witness={}", scratch.path("witness").display());
    scratch.ok(&format!("mkfs remote://{a},{b}?policy=mirror&{words}"));
    let array = format!("remote://{a},{b}?spare={c}&{words}");
    let shown = scratch.ok(&format!("remote status {array}"));
    assert!(shown.contains(": policy mirror, 2 of 2 members good, "), "{shown}");
    // Columns: the member, its address, what it lends, its state.
    for line in [["0", &a, "16 MiB", "good"], ["1", &b, "16 MiB", "good"]] {
        assert!(has_line(&shown, line), "{shown}");
    }
    assert!(has_line(&shown, ["-", &c, "16 MiB", "spare, empty"]), "{shown}");
    assert!(!shown.contains("open on this machine"), "{shown}");

    fs::create_dir(scratch.path("mnt")).unwrap();
    scratch.ok(&format!("mount {array} mnt"));
    fs::write(scratch.path("mnt/file"), "contents").unwrap();
    scratch.ok("transact mnt");
    let shown = scratch.ok(&format!("remote status {array}"));
    assert!(has_line(&shown, ["-", &c, "16 MiB", "spare, empty"]), "{shown}");
    assert!(shown.contains("\nopen on this machine: whole, "), "{shown}");
    for name in ["reads", "writes", "flushes"] {
        let line = shown.lines().find(|line| line.starts_with(&format!("{name} "))).expect(name);
        let (_, times) = line.split_once("   ").unwrap();
        let times: Vec<&str> =
            times.trim_start().rsplit("   ").next().unwrap().split(", ").collect();
        let [p50, p99, longest] = times[..] else { panic!("{line}") };
        for (time, name) in [(p50, "p50 "), (p99, "p99 "), (longest, "longest ")] {
            let number = time.strip_prefix(name).and_then(|time| time.strip_suffix(" ms"));
            assert!(number.expect(line).parse::<f64>().expect(line) >= 0.0, "{line}");
        }
    }
    scratch.ok("umount mnt");
    servers.into_iter().for_each(Server::end);
}

/// Whether a line has these columns.
fn has_line(shown: &str, columns: [&str; 4]) -> bool {
    let columns = columns.join(" ");
    shown.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == columns)
}
