//! Two clients of one array on real servers over loopback, each under a token: the later one fences
//! the earlier one.

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast_media::{ErrorClass, Medium};
use steadfast_remote::array::{
    Array, ArrayError, ArrayOptions, CreateOptions, Policy, State, Witness,
};
use steadfast_remote::client::{Endpoint, FleetOptions, TcpFleet};
use steadfast_remote::export::{GranuleSize, MemoryPool, PoolOptions};
use steadfast_remote::server::{Server, ServerOptions};

const SIZE: u64 = 16 << 20;

fn serve() -> Server {
    let pool = MemoryPool::new(PoolOptions {
        limit: SIZE,
        quota: SIZE,
        lease: None,
        names_max: 4,
        granules: GranuleSize::Small,
    });
    Server::start("127.0.0.1:0".parse().unwrap(), Arc::new(pool), ServerOptions::default()).unwrap()
}

/// An address without a listener.
fn closed() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A witness like etcd: only epochs of the newest token have consequences.
#[derive(Debug, Default)]
struct Notebook {
    newest: Mutex<u32>,
    orders: Mutex<HashMap<[u8; 16], (u64, u64)>>,
}

#[derive(Debug)]
struct Page(Arc<Notebook>, u32);

impl Witness for Page {
    fn note(&self, uuid: &[u8; 16], order: (u64, u64)) -> Result<(), String> {
        if *self.0.newest.lock().unwrap() != self.1 {
            return Err("fenced".to_owned());
        }
        self.0.orders.lock().unwrap().insert(*uuid, order);
        Ok(())
    }

    fn newest(&self, uuid: &[u8; 16]) -> Option<(u64, u64)> {
        self.0.orders.lock().unwrap().get(uuid).copied()
    }
}

fn fleet(places: &[String], token: u32, fenced: Option<Arc<AtomicBool>>) -> TcpFleet {
    let endpoint = |place: &String| Endpoint {
        address: place.clone(),
        export: format!("x@{token}"),
        tls: None,
    };
    let patience = Duration::from_secs(10);
    TcpFleet::new(
        places.iter().map(endpoint).collect(),
        FleetOptions { connections: 2, patience, fenced },
    )
}

fn options(notebook: &Arc<Notebook>, token: u32) -> ArrayOptions {
    *notebook.newest.lock().unwrap() = token;
    ArrayOptions {
        patience_ms: 10_000,
        hedge_ms: 10_000,
        witness: Some(Arc::new(Page(Arc::clone(notebook), token))),
        now: token.into(),
        // The token keeps the writes of the earlier client out, so no wait is needed.
        late_ms: 0,
        ..ArrayOptions::default()
    }
}

fn create(places: &[String], policy: Policy, notebook: &Arc<Notebook>) {
    let create = CreateOptions { policy, uuid: [5; 16], spares: 0 };
    let array = Array::create(fleet(places, 1, None), &create, options(notebook, 1)).unwrap();
    array.write(0, &[1; 4096]).unwrap();
    array.flush().unwrap();
}

fn reads<F: steadfast_remote::array::Fleet>(array: &Array<F>) -> u8 {
    let mut block = [0; 4096];
    array.read(0, &mut block).unwrap();
    assert!(block.iter().all(|byte| *byte == block[0]));
    block[0]
}

#[test]
fn the_earlier_client_neither_writes_nor_reads_any_more() {
    for (policy, count) in [(Policy::None, 2), (Policy::Mirror, 2), (Policy::Parity, 3)] {
        let servers: Vec<Server> = (0..count).map(|_| serve()).collect();
        let places: Vec<String> =
            servers.iter().map(|server| server.address().to_string()).collect();
        let notebook = Arc::new(Notebook::default());
        create(&places, policy, &notebook);
        let flag = Arc::new(AtomicBool::new(false));
        let earlier =
            Array::open(fleet(&places, 2, Some(Arc::clone(&flag))), options(&notebook, 2)).unwrap();
        earlier.write(0, &[2; 4096]).unwrap();
        earlier.flush().unwrap();
        // Accepted but not flushed: this write may be lost, but never arrives late.
        earlier.write(4096, &[9; 4096]).unwrap();
        let later = Array::open(fleet(&places, 3, None), options(&notebook, 3)).unwrap();
        assert_eq!(reads(&later), 2, "{policy}");
        later.write(0, &[3; 4096]).unwrap();
        later.flush().unwrap();
        let error = earlier.flush().unwrap_err();
        assert_eq!(error.class, ErrorClass::Gone, "{policy}");
        assert!(flag.load(Ordering::Relaxed), "{policy}");
        assert!(earlier.read(0, &mut [0; 4096]).is_err() && earlier.write(0, &[9; 4096]).is_err());
        let status = later.status();
        assert!(
            status.members.iter().all(|(state, _)| *state == State::Good) && !status.failed,
            "{policy}"
        );
        drop(later);
        let again = Array::open(fleet(&places, 4, None), options(&notebook, 4)).unwrap();
        let mut second = [0; 4096];
        again.read(4096, &mut second).unwrap();
        assert_eq!((reads(&again), second[0]), (3, 0), "{policy}");
    }
}

#[test]
fn of_two_clients_with_a_copy_each_the_later_one_counts() {
    for (mine, other) in [(0, 1), (1, 0)] {
        let servers = [serve(), serve()];
        let places: Vec<String> =
            servers.iter().map(|server| server.address().to_string()).collect();
        let notebook = Arc::new(Notebook::default());
        create(&places, Policy::Mirror, &notebook);
        // The earlier client learns of the later one only when it cannot note an epoch.
        let earlier = Array::open(fleet(&places, 2, None), options(&notebook, 2)).unwrap();
        let mut reached = places.clone();
        reached[other] = closed();
        let later = Array::open(fleet(&reached, 3, None), options(&notebook, 3)).unwrap();
        later.write(0, &[3; 4096]).unwrap();
        later.flush().unwrap();
        assert!(earlier.write(0, &[2; 4096]).and_then(|()| earlier.flush()).is_err());
        // On the server that only the earlier client reached, its epoch is as new as the later
        // client's, and void.
        drop((earlier, later));
        // That server alone is refused: etcd knows a later session.
        let mut left = places.clone();
        left[mine] = closed();
        let refused = Array::open(fleet(&left, 4, None), options(&notebook, 4)).err();
        assert!(matches!(refused, Some(ArrayError::Unsure(_))), "{refused:?}");
        let both = Array::open(fleet(&places, 5, None), options(&notebook, 5)).unwrap();
        assert_eq!(reads(&both), 3);
        assert_eq!(both.status().members[other].0, State::Lost);
        assert_eq!(both.status().members[mine].0, State::Good);
    }
}
