//! statfs(2) and statvfs(3).

use rustix::fs::{fstatvfs, statfs, statvfs};

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("statfs");
    list.add("numbers-make-sense", || {
        let volume = statvfs(".")?;
        holds(volume.f_bsize > 0 && volume.f_frsize > 0, "block sizes are set")?;
        holds(volume.f_bfree <= volume.f_blocks, "free is at most all")?;
        holds(volume.f_bavail <= volume.f_bfree, "available is at most free")?;
        same("longest name", volume.f_namemax, 255)
    });
    list.add("same-through-a-descriptor", || {
        let (by_path, by_file) = (statvfs(".")?, fstatvfs(open(".", O::RDONLY)?)?);
        same("blocks", by_path.f_blocks, by_file.f_blocks)?;
        same("block size", by_path.f_frsize, by_file.f_frsize)
    });
    list.add("works-for-any-type-of-file", || {
        put("f", b"")?;
        mkfifo("p", 0o600)?;
        same("blocks", statvfs("f")?.f_blocks, statvfs("p")?.f_blocks)
    });
    list.add("available-falls-with-data", || {
        let before = statvfs(".")?;
        let f = create("f")?;
        write_all(&f, &pattern(8 << 20, 1))?;
        rustix::fs::fsync(&f)?;
        let after = statvfs(".")?;
        let taken = before.f_bavail.saturating_sub(after.f_bavail) * before.f_frsize;
        holds(taken >= 7 << 20, &format!("8 MiB written, {taken} bytes fewer available"))
    });
    list.add("type-number-is-set", || holds(statfs(".")?.f_type != 0, "f_type"));
    list.add("file-count-follows-creation", || {
        if statvfs(".")?.f_files == 0 {
            return Err(Stop::skipped("files are not counted here"));
        }
        let used = || statvfs(".").map(|volume| volume.f_files - volume.f_ffree);
        let mut last = (0, 0);
        for turn in 0..10 {
            let before = used()?;
            for i in 0..100 {
                drop(create(format!("f{turn}-{i}"))?);
            }
            last = (before, used()?);
            if last.1 >= last.0 + 90 {
                return Ok(());
            }
            // Removed and closed files of earlier checks count until the system has released them.
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        Err(Stop::failed(format!("100 files made, {} in use before, {} then", last.0, last.1)))
    });
    list.add("missing-is-enoent", || fails(statvfs("missing"), Errno::NOENT));
    list.add("block-size-of-files-is-a-power-of-two", || {
        put("f", b"")?;
        let unit = stat("f")?.st_blksize as u64;
        holds(unit >= 512 && unit.is_power_of_two(), "st_blksize")
    });
    list.add("device-number-is-one-for-the-volume", || {
        put("f", b"")?;
        mkdir("d", 0o755)?;
        put("d/g", b"")?;
        same("f and d/g", stat("f")?.st_dev, stat("d/g")?.st_dev)?;
        same("f and here", stat("f")?.st_dev, stat(".")?.st_dev)
    });
}
