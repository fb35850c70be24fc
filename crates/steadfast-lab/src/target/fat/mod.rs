//! FAT by the `fatfs` crate, in this process, in two ways: on the device itself, and on a file in a
//! Steadfast volume.
//!
//! The second way is "FAT with a transactional layer". A device that must offer FAT (for a boot
//! loader, as a camera, or to export storage to a PC) keeps it. Each flush of the FAT is a
//! transaction point of the volume below, so a power cut never leaves a torn FAT. The volume's
//! transaction mask is empty, so nothing else sets a point.

mod files;
mod pages;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast::fs::{Caller, NewNode};
use steadfast::{FormatOptions, InodeNumber, OpenOptions, TransactionMask, Volume};
use steadfast_host::{FileMedium, HostPlatform, random_uuid};
use steadfast_media::Medium;

use self::files::{FatFiles, Shared, Store};
use self::pages::{Below, Pages};
use super::files::Files;
use super::image::Image;
use super::kernel::not_made;
use super::library::{Cached, HostVolume, failed, number, open_device};
use super::{Site, Target};
use crate::result::{self, Access, Status};
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// The storage of the FAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FatOn {
    /// The device.
    Device,
    /// A file in a Steadfast volume on the device.
    Steadfast,
}

/// The file in the volume.
const FILE: &[u8] = b"fat.img";

/// Share of the file in the volume, in eighths: overwritten blocks are kept until the next
/// transaction point.
const EIGHTHS: u64 = 6;

/// A FAT volume, opened in this process.
pub struct FatTarget {
    on: FatOn,
    site: Site,
    // The fields are dropped in this order.
    opened: Option<FatFiles>,
    image: Option<Image>,
}

impl FatTarget {
    /// A target without a volume yet.
    pub fn new(on: FatOn, site: &Site) -> FatTarget {
        FatTarget { on, site: site.clone(), opened: None, image: None }
    }

    /// The storage of the FAT in its present state.
    fn below(&self) -> Outcome<Store> {
        let Some(image) = &self.image else { return Err(not_made(self.id())) };
        let medium = open_device(image, Cached::No)?;
        if self.on == FatOn::Device {
            return Ok(Box::new(OnDevice { medium }));
        }
        let volume = Volume::open(medium, OpenOptions::default(), HostPlatform::new());
        let volume = volume.map_err(|error| failed("open the volume", &error))?;
        let found = volume
            .lookup(InodeNumber::ROOT, FILE)
            .map_err(|error| failed("find the image", &error))?;
        Ok(Box::new(OnVolume { size: found.size, inode: found.inode, volume: Arc::new(volume) }))
    }

    /// Makes a Steadfast volume with the file in it.
    fn make_volume(&self) -> Outcome {
        let Some(image) = &self.image else { return Err(not_made(self.id())) };
        let medium = open_device(image, Cached::No)?;
        let uuid = random_uuid().doing(|| "get randomness".into())?;
        let mask = TransactionMask::MANUAL;
        let options = FormatOptions { uuid, mask, ..FormatOptions::default() };
        Volume::format(&medium, &options, &HostPlatform::new())
            .map_err(|error| failed("format", &error))?;
        let made = |volume: &HostVolume| -> Result<(), steadfast::Error> {
            let caller = Caller { uid: 0, gid: 0, umask: 0 };
            let file = volume.create(InodeNumber::ROOT, FILE, NewNode::Regular, 0o600, &caller)?;
            let size = Some(self.site.volume_size / 8 * EIGHTHS);
            volume.set_attributes(
                file.inode,
                &steadfast::fs::SetAttributes { size, ..Default::default() },
            )?;
            volume.transact()
        };
        let volume = Volume::open(medium, OpenOptions::default(), HostPlatform::new());
        let volume = volume.map_err(|error| failed("open the volume", &error))?;
        made(&volume).map_err(|error| failed("make the image", &error))?;
        volume.close().map_err(|error| failed("close the volume", &error))
    }
}

impl Target for FatTarget {
    fn id(&self) -> &str {
        match self.on {
            FatOn::Device => "fat",
            FatOn::Steadfast => "fat-on-steadfast",
        }
    }

    fn describe(&self) -> result::TargetDescription {
        let (name, remark) = match self.on {
            FatOn::Device => {
                ("FAT (library)", "nothing of it survives a power cut in a known state")
            }
            FatOn::Steadfast => (
                "FAT on Steadfast (library)",
                "FAT with a transactional layer: in a file of a Steadfast volume, each flush is a transaction point",
            ),
        };
        result::TargetDescription {
            id: self.id().into(),
            name: name.into(),
            access: Access::Library,
            status: Status::Ok,
            volume_size: Some(self.site.volume_size),
            format: "FAT32".into(),
            mount_options: "direct, cache of 8 MiB".into(),
            version: "fatfs 0.3".into(),
            remarks: vec!["in process: no system calls; one thread only".into(), remark.into()],
        }
    }

    fn make(&mut self) -> Outcome {
        self.unmount()?;
        if self.image.is_none() {
            self.image = Some(Image::new(&self.site, self.id())?);
        }
        if self.on == FatOn::Steadfast {
            self.make_volume()?;
        }
        let pages = Shared::new(Pages::new(self.below()?));
        let options = fatfs::FormatVolumeOptions::new().fat_type(fatfs::FatType::Fat32);
        let made = fatfs::format_volume(pages.clone(), options);
        made.map_err(|error| {
            Trouble::Skip(format!("FAT32 cannot be made of this size ({error}): use --size"))
        })?;
        io::Write::flush(&mut *pages.pages()).doing(|| "format".into())?;
        drop(pages);
        self.mount().map(|_| ())
    }

    fn unmount(&mut self) -> Outcome {
        match self.opened.take() {
            Some(files) => files.unmount().doing(|| "unmount".into()),
            None => Ok(()),
        }
    }

    fn mount(&mut self) -> Outcome<Duration> {
        let start = Instant::now();
        let below = self.below()?;
        let files = FatFiles::mount(below, self.on == FatOn::Steadfast);
        let files = files.doing(|| "mount".into())?;
        let time = start.elapsed();
        self.opened = Some(files);
        Ok(time)
    }

    fn cut_power(&mut self) -> Outcome {
        let files = self.opened.take().ok_or_else(|| not_made(self.id()))?;
        files.cut_power();
        Ok(())
    }

    fn files(&self) -> Outcome<&dyn Files> {
        self.opened.as_ref().map(|files| files as &dyn Files).ok_or_else(|| not_made(self.id()))
    }

    fn device(&self) -> Option<String> {
        self.image.as_ref().and_then(Image::device_name)
    }

    fn in_process(&self) -> bool {
        true
    }

    fn directory_entries_most(&self) -> Option<u64> {
        Some(ENTRIES_MOST)
    }
}

/// Maximum number of files in a directory: each search reads all of them.
const ENTRIES_MOST: u64 = 4096;

struct OnDevice {
    medium: FileMedium,
}

impl Below for OnDevice {
    fn size(&self) -> u64 {
        self.medium.geometry().size
    }

    fn read(&mut self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        self.medium.read(offset, data).map_err(io::Error::other)
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.medium.write(offset, data).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.medium.flush().map_err(io::Error::other)
    }
}

/// A power cut drops it without a close. In all other cases the last flush has made everything
/// durable.
struct OnVolume {
    volume: Arc<HostVolume>,
    inode: InodeNumber,
    size: u64,
}

impl Below for OnVolume {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&mut self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let count = self.volume.read(self.inode, offset, data).map_err(number)?;
        if count == data.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.volume.write(self.inode, offset, data, false).map_err(number)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.volume.transact().map_err(number)
    }
}

impl Below for Store {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read(&mut self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        (**self).read(offset, data)
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        (**self).write(offset, data)
    }

    fn flush(&mut self) -> io::Result<()> {
        (**self).flush()
    }
}
