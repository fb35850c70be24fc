//! Images with changed fields and right checksums: mount, walk, write, check.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    steadfast_torture::hostile::hostile_image(input);
});
