//! The committed header equals the one that the source generates.

use std::path::Path;

#[test]
fn the_header_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let bindings =
        cbindgen::Builder::new().with_crate(root).with_config(config).generate().expect("a header");
    let mut made = Vec::new();
    bindings.write(&mut made);
    let made = String::from_utf8(made).expect("text");
    let committed = root.join("../../kernel/core.h");
    if std::env::var_os("STEADFAST_UPDATE").is_some() {
        std::fs::write(&committed, &made).expect("write the header");
    }
    let found = std::fs::read_to_string(&committed).unwrap_or_default();
    assert!(
        found == made,
        "kernel/core.h is not what the source makes; run\n\
         STEADFAST_UPDATE=1 cargo test -p steadfast-kernel --test header"
    );
}
