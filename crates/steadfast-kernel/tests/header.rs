//! The committed header equals the one that the source generates, and has the layout of the ioctl
//! that programs use.

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

/// Type and name of each field of a struct in a header.
fn fields(header: &str, name: &str) -> Vec<String> {
    let begin = format!("struct {name} {{\n");
    let body =
        header.split(&begin).nth(1).expect("the struct").split("\n}").next().expect("its end");
    let field = |line: &str| {
        let field = line.split(';').next().expect("a field").trim();
        // Bytes of texts are `char` for programs.
        field.replace("uint8_t ", "char ")
    };
    body.lines().filter(|line| line.contains(';')).map(field).collect()
}

/// This crate cannot use the struct of the mount, which needs the standard library. Programs see
/// one ioctl on both. So two structs have the same fields.
#[test]
fn both_sides_of_the_ioctl_have_one_layout() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("a header");
    let core = fields(&read("../../kernel/core.h"), "sfk_info");
    let programs = fields(&read("../steadfast-capi/include/steadfast-ioctl.h"), "sf_ioc_info");
    assert!(core.len() > 20, "{core:?}");
    assert_eq!(core, programs);
}
