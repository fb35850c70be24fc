//! The committed headers equal those that the source generates.

use std::path::Path;

use cbindgen::{Builder, Config};

/// Compares `include/<name>` with what `sources` make of the configuration.
fn compare(name: &str, config: &str, sources: impl FnOnce(Builder, &Path) -> Builder) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = Config::from_file(root.join(config)).expect("a configuration");
    let bindings = sources(Builder::new(), root).with_config(config).generate().expect("a header");
    let mut made = Vec::new();
    bindings.write(&mut made);
    let made = String::from_utf8(made).expect("text");
    let committed = root.join("include").join(name);
    if std::env::var_os("STEADFAST_UPDATE").is_some() {
        std::fs::write(&committed, &made).expect("write the header");
    }
    let found = std::fs::read_to_string(&committed).unwrap_or_default();
    assert!(
        found == made,
        "include/{name} is not what the source makes; run\n\
         STEADFAST_UPDATE=1 cargo test -p steadfast-capi --test header"
    );
}

#[test]
fn the_header_is_current() {
    compare("steadfast.h", "cbindgen.toml", |builder, root| builder.with_crate(root));
}

/// The part for programs without an operating system, which other programs cannot link.
#[test]
fn the_header_of_ports_is_current() {
    compare("steadfast-port.h", "cbindgen-port.toml", |builder, root| {
        builder.with_src(root.join("src/bare/port.rs"))
    });
}
