//! Seats: the limited places for connections, and which connection loses its seat when all are
//! taken.
//!
//! A connection that waits for the next request can be closed without harm, because its client
//! reconnects. So a new client gets the seat of an idle connection. It is the one that was idle
//! longest, of the peer with the most connections. No peer has more than its share, so other peers
//! always find a seat.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Limits;
use super::stream::Accepted;

/// The seats of a server.
#[derive(Debug, Default)]
pub(super) struct Seats {
    taken: Mutex<Vec<Arc<Seat>>>,
    refused: AtomicUsize,
}

/// The seat of one connection.
#[derive(Debug)]
pub(super) struct Seat {
    peer: IpAddr,
    /// Closes the connection from another thread.
    socket: TcpStream,
    idle_since: Mutex<Option<Instant>>,
}

impl Seat {
    fn idle(&self) -> Option<Duration> {
        locked(&self.idle_since).map(|since| since.elapsed())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seats {
    /// Present number of connections.
    pub(super) fn taken(&self) -> usize {
        locked(&self.taken).len()
    }

    /// Connections that found no seat.
    pub(super) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// A seat for a new connection, if one is free or an idle connection loses its seat.
    pub(super) fn take(
        self: &Arc<Self>,
        socket: TcpStream,
        from: SocketAddr,
        limits: &Limits,
    ) -> Option<Seated> {
        let seated = self.try_take(socket, from.ip().to_canonical(), limits);
        if seated.is_none() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        seated
    }

    fn try_take(
        self: &Arc<Self>,
        socket: TcpStream,
        peer: IpAddr,
        limits: &Limits,
    ) -> Option<Seated> {
        let mut taken = locked(&self.taken);
        let of = |taken: &[Arc<Seat>], peer| taken.iter().filter(|seat| seat.peer == peer).count();
        let share = limits.connections_per_peer.unwrap_or(limits.connections_max);
        let crowded = of(&taken, peer) >= share;
        if crowded || taken.len() >= limits.connections_max {
            let candidates =
                taken.iter().enumerate().filter(|(_, seat)| !crowded || seat.peer == peer);
            let idle = candidates.filter_map(|(at, seat)| {
                let idle = seat.idle().filter(|idle| *idle >= limits.idle_time)?;
                Some((of(&taken, seat.peer), idle, at))
            });
            let (_, _, at) = idle.max()?;
            // Its thread then sees the end of its input.
            let _ = taken.swap_remove(at).socket.shutdown(Shutdown::Both);
        }
        let seat =
            Arc::new(Seat { peer, socket: socket.try_clone().ok()?, idle_since: Mutex::new(None) });
        taken.push(Arc::clone(&seat));
        Some(Seated { seats: Arc::clone(self), seat, socket })
    }
}

/// A connection that has a seat until it is dropped.
#[derive(Debug)]
pub(super) struct Seated {
    seats: Arc<Seats>,
    seat: Arc<Seat>,
    socket: TcpStream,
}

impl Seated {
    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        locked(&self.seats.taken).retain(|seat| !Arc::ptr_eq(seat, &self.seat));
    }
}

impl Read for Seated {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.read(buffer)
    }
}

impl Write for Seated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl Accepted for Seated {
    fn set_patience(&self, read: Duration, write: Duration) -> io::Result<()> {
        self.socket.set_patience(read, write)
    }

    fn set_idle(&self, idle: bool) {
        *locked(&self.seat.idle_since) = idle.then(Instant::now);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A connection of this peer, and the client's end of it.
    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }

    fn has_ended(client: &mut TcpStream) -> bool {
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        matches!(client.read(&mut [0]), Ok(0))
    }

    #[test]
    fn a_peer_has_its_share_and_the_most_crowded_one_gives_first() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let limits = Limits {
            connections_max: 4,
            connections_per_peer: Some(3),
            idle_time: Duration::ZERO,
            ..Limits::default()
        };
        let seats = Arc::new(Seats::default());
        let mut ends = Vec::new();
        let mut take = |peer: &str| {
            let (socket, client) = connection(&listener);
            ends.push(client);
            seats.take(socket, format!("{peer}:1").parse().unwrap(), &limits)
        };
        let crowd: Vec<Seated> = (0..3).map(|_| take("10.0.0.1").expect("a place")).collect();
        // No connection is idle. The fourth one of this peer finds no seat, another peer finds one,
        // and then all seats are taken.
        assert!(take("10.0.0.1").is_none());
        let other = take("10.0.0.2").expect("a place");
        assert!(take("10.0.0.3").is_none());
        assert_eq!((seats.taken(), seats.refused()), (4, 2));
        // An idle connection of another peer does not help a peer that has its share.
        other.set_idle(true);
        assert!(take("10.0.0.1").is_none());
        // The peer with most connections loses a seat, though the other peer has been idle longer.
        std::thread::sleep(Duration::from_millis(2));
        crowd[1].set_idle(true);
        let third = take("10.0.0.3").expect("a place");
        assert_eq!(seats.taken(), 4);
        assert!(has_ended(&mut ends[1]) && !has_ended(&mut ends[0]));
        drop((other, third, crowd));
        assert_eq!(seats.taken(), 0);
    }
}
