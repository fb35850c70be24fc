//! Reporting to a witness: standard output, a file, or another machine.

use std::fs::File;
use std::io::{self, Write};
use std::net::TcpStream;
use std::path::Path;

use steadfast_torture::torture::device::witness::Line;

use steadfast_cli::failure::{Exit, Failure, Outcome, text_os};

/// A witness.
pub enum Teller {
    /// The reader of standard output: a terminal, or a pipe over ssh.
    StandardOutput(io::Stdout),
    /// A file. Each line is durable before the run continues, if the file's own medium is reliable.
    File(File),
    /// Another machine.
    Network(TcpStream),
}

impl Teller {
    /// Standard output.
    pub fn standard_output() -> Teller {
        Teller::StandardOutput(io::stdout())
    }

    /// The witness that `--witness` names: a file, `tcp:HOST:PORT`, or standard output if it is `-`
    /// or missing.
    ///
    /// # Errors
    /// It cannot be opened or connected.
    pub fn open(place: Option<&str>) -> Outcome<Teller> {
        let Some(place) = place.filter(|place| *place != "-") else {
            return Ok(Self::standard_output());
        };
        let Some(address) = place.strip_prefix("tcp:") else {
            let file = File::options().create(true).append(true).open(place);
            return file
                .map(Teller::File)
                .map_err(|error| Failure::host(&error, "write", Path::new(place)));
        };
        let stream = TcpStream::connect(address).and_then(|stream| {
            // The witness does not know a line that waits in a buffer.
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        stream.map(Teller::Network).map_err(|error| {
            Failure::new(
                Exit::Failed,
                format!("cannot connect: {}", text_os(&error)),
                place,
                "write tcp:HOST:PORT, and let something listen there, such as 'nc -l PORT > witness.log'",
            )
        })
    }

    /// Reports one line.
    ///
    /// # Errors
    /// The witness no longer reads.
    pub fn tell(&mut self, line: Line) -> io::Result<()> {
        let text = format!("{line}\n");
        match self {
            Teller::StandardOutput(stdout) => {
                stdout.write_all(text.as_bytes())?;
                stdout.flush()
            }
            Teller::File(file) => {
                file.write_all(text.as_bytes())?;
                file.sync_data()
            }
            Teller::Network(stream) => stream.write_all(text.as_bytes()),
        }
    }
}
