//! Paths and handles.

use alloc::vec;

use crate::error::Error;
use crate::fs::tests::plain;
use crate::fs::{FileOptions, RenameMode};

#[test]
fn walking() {
    let volume = plain();
    let c = volume.create_directory_all("/a/b//c/").unwrap().inode;
    assert_eq!(volume.create_directory_all("a/b/c").unwrap().inode, c);
    for path in ["a/b/c", "/a/./b/../b/c/", "a/b/c/.", "../../a/b/c", "a/b/c/../../b/c"] {
        assert_eq!(volume.resolve(path, true).unwrap().inode, c, "{path}");
    }
    assert_eq!(volume.resolve("", true).unwrap().inode, crate::fs::tests::ROOT);
    assert_eq!(volume.resolve("/..", true).unwrap().inode, crate::fs::tests::ROOT);
    volume.file_write_all("a/f", b"data").unwrap();
    assert_eq!(volume.resolve("a/f/", true), Err(Error::NotADirectory));
    assert_eq!(volume.resolve("a/f/x", true), Err(Error::NotADirectory));
    assert_eq!(volume.resolve("a/none/x", true), Err(Error::NotFound));
    assert_eq!(volume.create_directory_all("a/f/x"), Err(Error::NotADirectory));
    assert_eq!(volume.remove_all("/"), Err(Error::InvalidName));
    assert_eq!(volume.remove_all("a/.."), Err(Error::InvalidName));
}

#[test]
fn links_on_the_way() {
    let volume = plain();
    volume.create_directory_all("a/b").unwrap();
    volume.file_write_all("a/b/f", b"data").unwrap();
    volume.create_symlink("b", "a/l").unwrap();
    volume.create_symlink("/a/l/f", "far").unwrap();
    assert_eq!(volume.file_read_all("a/l/f").unwrap(), b"data");
    assert_eq!(volume.file_read_all("far").unwrap(), b"data");
    volume.create_symlink("new", "dangling").unwrap();
    assert_eq!(volume.file_read_all("dangling"), Err(Error::NotFound));
    volume.file_write_all("dangling", b"made").unwrap();
    assert_eq!(volume.file_read_all("new").unwrap(), b"made");
    volume.create_symlink("loop2", "loop1").unwrap();
    volume.create_symlink("loop1", "loop2").unwrap();
    assert_eq!(volume.resolve("loop1", true), Err(Error::SymlinkLoop));
    volume.remove_all("far").unwrap();
    assert_eq!(volume.file_read_all("a/b/f").unwrap(), b"data");
}

#[test]
fn handles() {
    let volume = plain();
    let new = FileOptions::new().write(true).create_new(true);
    let file = volume.open_file("f", &new).unwrap();
    assert_eq!(volume.open_file("f", &new).err(), Some(Error::AlreadyExists));
    file.write_at(3, b"abc").unwrap();
    assert_eq!(file.read_at(0, &mut [0]), Err(Error::NotPermitted));
    let reader = volume.open_file("f", &FileOptions::new().read(true)).unwrap();
    assert_eq!(reader.write_at(0, b"x"), Err(Error::NotPermitted));
    assert_eq!(reader.read_all().unwrap(), b"\0\0\0abc");
    volume.remove_all("f").unwrap();
    file.close().unwrap();
    volume.settle_orphans();
    assert_eq!(reader.read_all().unwrap(), b"\0\0\0abc", "still open");
    let inode = reader.inode();
    drop(reader);
    volume.settle_orphans();
    assert_eq!(volume.attributes(inode), Err(Error::Stale(inode)));
    assert_eq!(volume.open_file("/", &new.create_new(false)).err(), Some(Error::IsADirectory));
    assert!(volume.open_file("f", &FileOptions::new()).is_err());
    assert!(volume.open_file("f", &FileOptions::new().read(true).truncate(true)).is_err());
}

#[test]
fn trees_are_removed() {
    let volume = plain();
    let before = volume.free_blocks();
    for a in 0..5 {
        for b in 0..40 {
            let directory = alloc::format!("top/{a}/{b}");
            volume.create_directory_all(&directory).unwrap();
            volume.file_write_all(alloc::format!("{directory}/f"), &vec![1; 3000]).unwrap();
        }
    }
    volume.create_symlink("/", "top/root").unwrap();
    assert_eq!(volume.directory_entries("top").unwrap().len(), 6);
    volume.rename_path("top/3", "top/4/39/moved", RenameMode::Replace).unwrap();
    volume.remove_all("top/").unwrap();
    assert!(volume.directory_entries("/").unwrap().is_empty());
    assert!(volume.free_blocks() >= before);
}
