//! Images with any bytes changed.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    steadfast_torture::hostile::raw_image(input);
});
