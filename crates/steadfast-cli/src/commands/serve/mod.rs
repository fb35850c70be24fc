//! `steadfast serve`: serves memory, an image or a file inside a volume over NBD.

mod file_export;
mod memory;
mod nbd;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use steadfast_remote::export::Catalogue;
use steadfast_remote::server::{
    Limits, Server, ServerOptions, TlsError, TlsFiles, is_loopback, server_config,
};

use crate::failure::{Exit, Failure, Outcome, text_os};
use crate::output::Output;

/// Serve memory, an image, or a file inside a volume over NBD, until a signal ends it
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: ServeCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ServeCommand {
    Memory(memory::Args),
    Nbd(nbd::Args),
}

/// Where to listen, and which clients to accept.
#[derive(Debug, clap::Args)]
pub struct Listening {
    /// Address and port; port 0 takes any free port, and the first line of output names it
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10809")]
    listen: String,
    /// Certificate (PEM): clients must use TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authorities (PEM): clients must show a certificate from one of them
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
    /// Listen on an address that other machines can reach, without TLS: any of them can read and
    /// write
    #[arg(long)]
    insecure: bool,
    /// Most connections at one time
    #[arg(long, default_value_t = 128, value_name = "N")]
    connections: usize,
    /// Most connections at one time from one address; by default half of all
    #[arg(long, value_name = "N")]
    connections_per_peer: Option<usize>,
}

/// Runs the command.
///
/// # Errors
/// What prevents listening, or prevents opening or closing the source.
pub fn run(args: &Args) -> Outcome {
    match &args.command {
        ServeCommand::Memory(args) => memory::run(args),
        ServeCommand::Nbd(args) => nbd::run(args),
    }
}

impl Listening {
    fn address(&self) -> Outcome<SocketAddr> {
        let wrong = |what: String| {
            Failure::new(
                Exit::Usage,
                what,
                &self.listen,
                "give an address and a port, such as 127.0.0.1:10809",
            )
        };
        let mut found = self.listen.to_socket_addrs().map_err(|error| wrong(text_os(&error)))?;
        let address = found.next().ok_or_else(|| wrong("the name has no address".to_owned()))?;
        if !is_loopback(&address) && self.tls_cert.is_none() && !self.insecure {
            return Err(Failure::new(
                Exit::Usage,
                "other machines can reach this address, and there is no TLS",
                &self.listen,
                "give --tls-cert, --tls-key and --tls-ca, or --insecure if the network is yours alone",
            ));
        }
        Ok(address)
    }

    /// Serves until a signal. `told` describes the source in messages. `announce` runs once clients
    /// can connect; the value that it returns is dropped before the server ends.
    fn serve<T>(
        &self,
        catalogue: Arc<dyn Catalogue>,
        told: &str,
        announce: impl FnOnce(SocketAddr) -> Outcome<T>,
    ) -> Outcome {
        let address = self.address()?;
        let files = TlsFiles {
            certificate: self.tls_cert.clone(),
            key: self.tls_key.clone(),
            authorities: self.tls_ca.clone(),
        };
        let tls = match self.tls_cert {
            Some(_) => Some(server_config(&files).map_err(|error| tls_failure(&error))?),
            None => None,
        };
        // Signals are caught before any client can connect, so that the source is always closed
        // properly.
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|error| {
            Failure::new(
                Exit::Failed,
                text_os(&error),
                "signals",
                "this system does not let them be caught",
            )
        })?;
        let names = catalogue.names();
        let limits = Limits {
            connections_max: self.connections.max(1),
            connections_per_peer: Some(per_peer(self.connections, self.connections_per_peer)),
            ..Limits::default()
        };
        let server =
            Server::start(address, catalogue, ServerOptions { tls, limits }).map_err(|error| {
                Failure::new(
                    Exit::Busy,
                    format!("cannot listen: {}", text_os(&error)),
                    &self.listen,
                    "use another port, or end what listens there",
                )
            })?;
        let announced = announce(server.address())?;
        let mut output = Output::new();
        output.line(format_args!("serving {told} on {}", server.address()))?;
        for name in names {
            output.line(format_args!(
                "URI {}",
                uri(server.address(), &name, self.tls_cert.is_some())
            ))?;
        }
        output.finish()?;
        let _ = signals.forever().next();
        drop(announced);
        drop(server);
        Ok(())
    }
}

/// Most connections from one address. By default it is half of all, so that no client can keep
/// others out.
fn per_peer(connections: usize, wanted: Option<usize>) -> usize {
    wanted.unwrap_or(connections.div_ceil(2)).max(1)
}

/// The export as an NBD URI, for `nbdinfo` and QEMU.
fn uri(address: SocketAddr, export: &str, tls: bool) -> String {
    let scheme = if tls { "nbds" } else { "nbd" };
    let mut uri = format!("{scheme}://{address}/");
    for byte in export.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(byte.into());
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

/// A failure with certificates.
pub fn tls_failure(error: &TlsError) -> Failure {
    Failure::new(Exit::Usage, error.to_string(), "TLS", "give PEM files that belong together")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_gets_half_of_the_connections() {
        let shares = [(128, None), (5, None), (1, None), (0, None), (128, Some(100)), (4, Some(0))]
            .map(|(connections, wanted)| per_peer(connections, wanted));
        assert_eq!(shares, [64, 3, 1, 1, 100, 1]);
    }

    #[test]
    fn uris() {
        let v4: SocketAddr = "127.0.0.1:10809".parse().unwrap();
        let v6: SocketAddr = "[::1]:7".parse().unwrap();
        assert_eq!(uri(v4, "disk.img", false), "nbd://127.0.0.1:10809/disk.img");
        assert_eq!(uri(v6, "/a b%", true), "nbds://[::1]:7//a%20b%25");
    }
}
