//! Writing to standard output.
//!
//! Everything that a command prints goes through this module. If the reader ends early (`steadfast
//! ls … | head`), SIGPIPE ends the program, as with other Unix filters. A full disk is an error and
//! not a panic.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::path::Path;

use serde::Serialize;

use crate::failure::{Failure, Outcome};

/// Buffered standard output. Call [`finish`](Self::finish) at the end, because writing the rest of
/// the buffer may fail.
pub struct Output {
    inner: BufWriter<StdoutLock<'static>>,
    terminal: bool,
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

impl Output {
    /// Standard output of this process.
    pub fn new() -> Output {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        Output { inner: BufWriter::with_capacity(64 << 10, stdout.lock()), terminal }
    }

    /// Writes bytes unchanged.
    pub fn bytes(&mut self, bytes: &[u8]) -> Outcome {
        self.inner.write_all(bytes).map_err(failed)
    }

    /// Writes a line of text.
    pub fn line(&mut self, text: impl std::fmt::Display) -> Outcome {
        writeln!(self.inner, "{text}").map_err(failed)
    }

    /// Writes a name from a volume: unchanged for a program, with control characters replaced for a
    /// terminal.
    pub fn name(&mut self, name: &[u8]) -> Outcome {
        if self.terminal { self.bytes(printable(name).as_bytes()) } else { self.bytes(name) }
    }

    /// Writes a value as one JSON document on separate lines.
    pub fn json<T: Serialize + ?Sized>(&mut self, value: &T) -> Outcome {
        serde_json::to_writer_pretty(&mut self.inner, value)
            .map_err(|error| failed(error.into()))?;
        self.bytes(b"\n")
    }

    /// Writes the rest of the buffer.
    pub fn finish(mut self) -> Outcome {
        self.inner.flush().map_err(failed)
    }
}

/// Prints one JSON document.
pub fn json<T: Serialize + ?Sized>(value: &T) -> Outcome {
    let mut output = Output::new();
    output.json(value)?;
    output.finish()
}

/// Prints one line.
pub fn line(text: impl std::fmt::Display) -> Outcome {
    let mut output = Output::new();
    output.line(text)?;
    output.finish()
}

fn failed(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        // Rust ignores SIGPIPE at start, so this ends the program as the default action would. The
        // code below runs only if that fails.
        let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGPIPE);
    }
    Failure::host(&error, "write", Path::new("standard output"))
}

/// A name with every character replaced that could move a terminal's cursor.
pub fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).replace(|c: char| c.is_control(), "?")
}

/// A name in JSON: as text, and also as hexadecimal bytes if the text is not exact.
#[derive(Debug, Serialize)]
pub struct JsonName {
    /// The name, with U+FFFD for bytes that are not UTF-8.
    pub name: String,
    /// The exact bytes, present only if `name` is not exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_hex: Option<String>,
}

impl JsonName {
    /// The name for JSON.
    pub fn new(name: &[u8]) -> JsonName {
        match std::str::from_utf8(name) {
            Ok(text) => JsonName { name: text.to_owned(), name_hex: None },
            Err(_) => JsonName {
                name: String::from_utf8_lossy(name).into_owned(),
                name_hex: Some(name.iter().map(|byte| format!("{byte:02x}")).collect()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(printable(b"a\x1b[2Jb\n"), "a?[2Jb?");
        assert_eq!(JsonName::new(b"\xffz").name_hex.as_deref(), Some("ff7a"));
        assert!(JsonName::new("ü".as_bytes()).name_hex.is_none());
    }
}
