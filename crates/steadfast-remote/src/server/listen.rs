//! [`Server`]: the listening socket, and the threads of its connections.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::connection::serve_stream;
use super::seats::Seats;
use super::{Limits, stream};
use crate::export::Catalogue;

/// Options of a server.
#[derive(Clone, Default)]
pub struct ServerOptions {
    /// Certificate and key, if clients must use TLS.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Limits for clients.
    pub limits: Limits,
}

/// Whether only this machine can reach an address.
pub fn is_loopback(address: &SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.to_ipv4_mapped().is_some_and(|address| address.is_loopback())
        }
    }
}

/// A running server. Dropping it stops it: no new connections, and idle connections are closed.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    stop: AtomicBool,
    seats: Arc<Seats>,
}

impl Server {
    /// Listens on `address` and serves `catalogue` in threads of its own.
    ///
    /// # Errors
    /// The address cannot be used, or the thread cannot be made.
    pub fn start(
        address: SocketAddr,
        catalogue: Arc<dyn Catalogue>,
        options: ServerOptions,
    ) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        // Polls with sleeps: accept has no timeout, and the end of the server must not depend on a
        // client.
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), seats: Arc::default() });
        let thread = std::thread::Builder::new().name("nbd-accept".into()).spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &catalogue, &options, &shared)
        })?;
        Ok(Server { address, shared, thread: Some(thread) })
    }

    /// The address it listens on, with the real port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Present number of connections.
    pub fn connections(&self) -> usize {
        self.shared.seats.taken()
    }

    /// Connections that were closed at once because there were too many.
    pub fn refused(&self) -> usize {
        self.shared.seats.refused()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Requests in progress end within the time limit of a socket.
        let limit = Instant::now() + 4 * stream::TICK;
        while self.connections() > 0 && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn accept(
    listener: &TcpListener,
    catalogue: &Arc<dyn Catalogue>,
    options: &ServerOptions,
    shared: &Arc<Shared>,
) {
    let mut tended = Instant::now();
    let mut nap = Duration::from_millis(1);
    while !shared.stop.load(Ordering::Relaxed) {
        if tended.elapsed() >= Duration::from_secs(1) {
            catalogue.tend();
            tended = Instant::now();
        }
        match listener.accept() {
            Ok((stream, from)) => {
                nap = Duration::from_millis(1);
                welcome(stream, from, catalogue, options, shared);
            }
            Err(_) => {
                // No client is waiting, or no descriptors are left: both pass.
                std::thread::sleep(nap);
                nap = (nap * 2).min(Duration::from_millis(20));
            }
        }
    }
}

/// Starts a thread for a connection, or closes it.
fn welcome(
    stream: TcpStream,
    from: SocketAddr,
    catalogue: &Arc<dyn Catalogue>,
    options: &ServerOptions,
    shared: &Arc<Shared>,
) {
    let Some(seated) = shared.seats.take(stream, from, &options.limits) else { return };
    let (catalogue, options, shared) = (Arc::clone(catalogue), options.clone(), Arc::clone(shared));
    let serve = move || {
        let socket = seated.socket();
        if socket.set_nonblocking(false).and_then(|()| socket.set_nodelay(true)).is_err() {
            return;
        }
        // An error of one client ends only its own connection.
        let _ = serve_stream(seated, &*catalogue, options.tls, &options.limits, &shared.stop);
    };
    // Without a thread the closure is dropped, and so are the connection and its seat.
    let _ = std::thread::Builder::new().name("nbd".into()).spawn(serve);
}
