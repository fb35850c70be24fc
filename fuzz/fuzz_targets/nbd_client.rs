//! Our NBD client against whatever the other side says.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = steadfast_remote::hostile::client(input);
});
