//! Operations on a volume and on the model side by side.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(what) = steadfast_torture::hostile::run_stream(input) {
        panic!("{what}");
    }
});
