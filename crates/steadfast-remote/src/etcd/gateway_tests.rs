//! The gateway against faulty peers: malformed, refusing, slow or silent ones, and other programs.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Gateway;
use crate::etcd::store::{Store, StoreError, Transaction};
use crate::server::TlsFiles;

/// Answers every request with the same bytes, and counts requests.
struct Canned {
    place: String,
    asked: Arc<AtomicUsize>,
}

fn canned(status: &'static str, body: &'static str) -> Canned {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    // Ends with the test process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::Relaxed);
            answer(stream, status, body);
        }
    });
    Canned { place, asked }
}

fn answer(mut stream: TcpStream, status: &str, body: &str) {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
        if let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
            if rest.len() >= length.and_then(|length| length.trim().parse().ok()).unwrap_or(0) {
                break;
            }
        }
        match stream.read(&mut piece) {
            Ok(count @ 1..) => request.extend_from_slice(&piece[..count]),
            _ => return,
        }
    }
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
}

fn gateway(places: &[&str]) -> Gateway {
    let places: Vec<String> = places.iter().map(|place| (*place).to_owned()).collect();
    Gateway::new(&places, &TlsFiles::default(), Duration::from_secs(20)).unwrap()
}

/// An address without a listener: its port was just closed.
fn closed() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn answers_are_read() {
    let range = canned(
        "200 OK",
        r#"{"header":{"revision":"7"},"kvs":[{"key":"YS8x","create_revision":"2","mod_revision":"6","version":"1","value":"dg==","lease":"2228897004785858311"},{"key":"YS8y","mod_revision":7}],"count":"2"}"#,
    );
    let found = gateway(&[&range.place]).get("a/").unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|entry| (entry.key.as_str(), entry.value.as_str(), entry.revision, entry.lease))
        .collect();
    assert_eq!(found, [("a/1", "v", 6, 2_228_897_004_785_858_311), ("a/2", "", 7, 0)]);
    let nothing = canned("200 OK", r#"{"header":{"revision":"7"}}"#);
    assert_eq!(gateway(&[&nothing.place]).get("a/"), Ok(Vec::new()));
    // An absent flag means false.
    assert_eq!(gateway(&[&nothing.place]).commit(&Transaction::default()), Ok(false));
    let ended = canned("200 OK", r#"{"result":{"header":{},"ID":"5"}}"#);
    assert_eq!(gateway(&[&ended.place]).renew(5), Ok(false));
}

#[test]
fn what_is_no_answer_is_an_error_and_never_an_empty_list() {
    for body in [
        "",
        "{",
        "{}",
        "[]",
        "null",
        "<html>hello</html>",
        r#"{"header":{},"kvs":[{"key":"YS8x"}]}"#,
        r#"{"header":{},"kvs":[{"key":"YS8x","mod_revision":"0"}]}"#,
        r#"{"header":{},"kvs":[{"key":"YS8x","mod_revision":"-3"}]}"#,
        r#"{"header":{},"kvs":[{"key":"YS8x","mod_revision":"many"}]}"#,
        r#"{"header":{},"kvs":[{"key":"YS8x","mod_revision":"99999999999999999999"}]}"#,
        r#"{"header":{},"kvs":[{"key":"!!","mod_revision":"3"}]}"#,
        r#"{"header":{},"kvs":[{"key":"YS8x","mod_revision":"3","value":"/w=="}]}"#,
    ] {
        let server = canned("200 OK", body);
        let found = gateway(&[&server.place]).get("a/");
        assert!(matches!(found, Err(StoreError::Garbled(_))), "{body}: {found:?}");
    }
}

#[test]
fn the_next_member_is_asked_where_one_does_not_answer_but_not_where_it_refuses() {
    let good = canned("200 OK", r#"{"header":{},"ID":"12"}"#);
    let unavailable =
        canned("503 Service Unavailable", r#"{"error":"etcdserver: no leader","code":14}"#);
    let noise = canned("502 Bad Gateway", "<html>");
    let refusing = canned("400 Bad Request", r#"{"error":"etcdserver: no","code":3}"#);
    let gateway = |places: &[&str]| gateway(places);
    let members = gateway(&[&closed(), &unavailable.place, &noise.place, &good.place]);
    assert_eq!(members.grant(5), Ok(12));
    assert_eq!(
        (unavailable.asked.load(Ordering::Relaxed), noise.asked.load(Ordering::Relaxed)),
        (1, 1)
    );
    // The member that answered is asked first from now on.
    assert_eq!(members.grant(5), Ok(12));
    assert_eq!(unavailable.asked.load(Ordering::Relaxed), 1);
    let before = good.asked.load(Ordering::Relaxed);
    let refused = gateway(&[&refusing.place, &good.place]).grant(5);
    assert_eq!(refused, Err(StoreError::Refused("etcdserver: no".to_owned())));
    assert_eq!(good.asked.load(Ordering::Relaxed), before);
    let unreachable = gateway(&[&closed(), &noise.place]).grant(5);
    assert!(matches!(unreachable, Err(StoreError::Unreachable(why)) if why.contains("502")));
}

#[test]
fn a_member_that_takes_too_long_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    // The kernel accepts connections, but no program answers.
    let gateway = Gateway::new(&[place], &TlsFiles::default(), Duration::from_millis(50)).unwrap();
    assert!(matches!(gateway.get("a"), Err(StoreError::Unreachable(_))));
}
