//! File names: any bytes, up to 255 of them, and deep paths.

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("names");
    for length in [1usize, 2, 14, 15, 16, 100, 254, 255] {
        list.add(format!("{length}-bytes"), move || {
            let name = "n".repeat(length);
            put(name.as_str(), b"abc")?;
            same("content", get(name.as_str())?, b"abc".to_vec())?;
            same("names", names(".")?, vec![name.clone().into_bytes()])?;
            let other = "m".repeat(length);
            rename(name.as_str(), other.as_str())?;
            Ok(unlink(other.as_str())?)
        });
    }
    list.add("every-single-byte", || {
        let bytes: Vec<u8> = (1..=255u8).filter(|&byte| byte != b'/' && byte != b'.').collect();
        for &byte in &bytes {
            put(&[byte][..], &[byte])?;
        }
        same("names", names(".")?, bytes.iter().map(|&byte| vec![byte]).collect::<Vec<_>>())?;
        for &byte in &bytes {
            same("content", get(&[byte][..])?, vec![byte])?;
        }
        Ok(())
    });
    list.add("every-byte-inside-a-longer-name", || {
        for byte in (1..=255u8).filter(|&byte| byte != b'/') {
            mkdir(&[b'a', byte, b'z'][..], 0o755)?;
        }
        same("count", names(".")?.len(), 254)
    });
    list.add("not-utf8", || {
        put(&b"\xff\xfe\x80"[..], b"x")?;
        same("content", get(&b"\xff\xfe\x80"[..])?, b"x".to_vec())
    });
    list.add("case-matters", || {
        put("Name", b"1")?;
        put("name", b"2")?;
        same("content", (get("Name")?, get("name")?), (b"1".to_vec(), b"2".to_vec()))
    });
    list.add("unicode-forms-are-different-names", || {
        put("\u{e9}", b"composed")?;
        put("e\u{301}", b"decomposed")?;
        same("count", names(".")?.len(), 2)
    });
    list.add("dots-and-spaces-are-plain-bytes", || {
        for name in ["...", "..a", ".a", " ", "a ", " a", "a.", "\t", "\n", "-rf", "*", "a\\b"] {
            put(name, name.as_bytes())?;
        }
        same("count", names(".")?.len(), 12)?;
        same("content", get("a\\b")?, b"a\\b".to_vec())
    });
    list.add("common-prefixes-stay-apart", || {
        let stem = "p".repeat(250);
        for i in 0..500 {
            put(format!("{stem}{i:05}"), format!("{i}").as_bytes())?;
        }
        for i in 0..500 {
            same("content", get(format!("{stem}{i:05}"))?, format!("{i}").into_bytes())?;
        }
        Ok(())
    });
    list.add("repeated-slashes-count-once", || {
        mkdir("d", 0o755)?;
        put("d///f", b"abc")?;
        same("content", get(".//d/.//f")?, b"abc".to_vec())
    });
    list.add("path-of-4095-bytes-works", || {
        let mut path = String::new();
        for _ in 0..15 {
            path.push_str(&"d".repeat(255));
            mkdir(path.as_str(), 0o755)?;
            path.push('/');
        }
        path.push_str(&"f".repeat(4095 - path.len()));
        same("length", path.len(), 4095)?;
        put(path.as_str(), b"deep")?;
        same("content", get(path.as_str())?, b"deep".to_vec())?;
        fails(stat(format!("{path}x")), Errno::NAMETOOLONG)
    });
    list.add("a-thousand-levels", || {
        for _ in 0..1000 {
            mkdir("d", 0o755)?;
            rustix::process::chdir("d")?;
        }
        put("f", b"bottom")?;
        same("content", get("f")?, b"bottom".to_vec())?;
        for _ in 0..1000 {
            rustix::process::chdir("..")?;
        }
        same("names", names(".")?, vec![b"d".to_vec()])
    });
}
