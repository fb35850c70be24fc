//! The checks, one file per subject.

#![allow(
    clippy::unit_arg,
    reason = "`Ok(call()?)` turns the error of a call into a verdict on one line"
)]

mod access;
mod acls;
mod attributes;
mod concurrency;
mod copies;
mod directories;
mod errors;
mod fallocate;
mod flags;
mod io;
mod links;
mod locks;
mod maps;
mod names;
mod nodes;
mod open;
mod ownership;
mod permissions;
mod rename;
mod sparse;
mod stamps;
mod statfs;
mod symlinks;
mod sync;
mod times;
mod tmpfile;
mod truncate;
mod unlink;

use crate::list::{Check, List};

/// All checks.
pub fn all() -> Vec<Check> {
    let mut list = List::default();
    for add in [
        open::add,
        io::add,
        sparse::add,
        truncate::add,
        links::add,
        symlinks::add,
        nodes::add,
        unlink::add,
        rename::add,
        directories::add,
        names::add,
        errors::add,
        times::add,
        stamps::add,
        permissions::add,
        access::add,
        ownership::add,
        attributes::add,
        acls::add,
        tmpfile::add,
        fallocate::add,
        flags::add,
        copies::add,
        maps::add,
        locks::add,
        sync::add,
        statfs::add,
        concurrency::add,
    ] {
        add(&mut list);
    }
    list.into_checks()
}
