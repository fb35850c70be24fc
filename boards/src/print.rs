//! Lines for the script that runs the emulator.

use crate::machine::semihosting;

const WRITE0: usize = 4;
const EXIT_EXTENDED: usize = 0x20;
/// "The application ends", with an exit code.
const APPLICATION_EXIT: usize = 0x2_0026;

/// Prints text.
pub fn text(text: &str) {
    for part in text.as_bytes().chunks(63) {
        let mut line = [0_u8; 64];
        line[..part.len()].copy_from_slice(part);
        semihosting(WRITE0, (&raw const line).expose_provenance());
    }
}

/// Prints a number.
pub fn number(mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while at == digits.len() || number > 0 {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    text(core::str::from_utf8(&digits[at..]).unwrap_or("?"));
}

/// Prints ` NAME NUMBER`.
pub fn field(name: &str, value: u64) {
    text(" ");
    text(name);
    text(" ");
    number(value);
}

/// Ends the emulator with exit code 0 or 1.
pub(crate) fn leave(success: bool) -> ! {
    let request = [APPLICATION_EXIT, usize::from(!success)];
    loop {
        semihosting(EXIT_EXTENDED, (&raw const request).expose_provenance());
    }
}
