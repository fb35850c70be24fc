//! Our NBD server against whatever the other side says.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    steadfast_remote::hostile::server(input);
});
