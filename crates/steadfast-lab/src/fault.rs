//! Why an operation is refused, as the model and the volume can be compared by it.

use steadfast::Error;

/// The cause of a refusal without its details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// No such name.
    NotFound,
    /// The name exists.
    AlreadyExists,
    /// A directory was needed.
    NotADirectory,
    /// Not on directories.
    IsADirectory,
    /// The directory has entries.
    DirectoryNotEmpty,
    /// Regular files only.
    NotARegularFile,
    /// Name too long.
    NameTooLong,
    /// Not a name.
    InvalidName,
    /// Value too long.
    ValueTooLong,
    /// An argument out of range.
    InvalidArgument,
    /// Beyond the largest file size.
    FileTooLarge,
    /// A directory below itself.
    MoveIntoSelf,
    /// No such attribute.
    NoAttribute,
    /// Nothing behind the offset.
    NoSuchOffset,
    /// The inode is gone.
    Stale,
    /// Not allowed on this object.
    NotPermitted,
    /// Not supported.
    Unsupported,
    /// Newer snapshots would go.
    NewerSnapshots,
    /// An atomic command is running.
    Held,
    /// The volume cannot have this size.
    Size,
    /// No space.
    NoSpace,
    /// Everything that a healthy volume on a healthy medium never says.
    Broken,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        match error {
            Error::NotFound => Fault::NotFound,
            Error::AlreadyExists => Fault::AlreadyExists,
            Error::NotADirectory => Fault::NotADirectory,
            Error::IsADirectory => Fault::IsADirectory,
            Error::DirectoryNotEmpty => Fault::DirectoryNotEmpty,
            Error::NotARegularFile => Fault::NotARegularFile,
            Error::NameTooLong => Fault::NameTooLong,
            Error::InvalidName => Fault::InvalidName,
            Error::ValueTooLong => Fault::ValueTooLong,
            Error::InvalidArgument(_) => Fault::InvalidArgument,
            Error::FileTooLarge => Fault::FileTooLarge,
            Error::MoveIntoSelf => Fault::MoveIntoSelf,
            Error::NoAttribute => Fault::NoAttribute,
            Error::NoSuchOffset => Fault::NoSuchOffset,
            Error::Stale(_) => Fault::Stale,
            Error::NotPermitted => Fault::NotPermitted,
            Error::Unsupported(_) => Fault::Unsupported,
            Error::NewerSnapshots => Fault::NewerSnapshots,
            Error::Held => Fault::Held,
            Error::NoSpace => Fault::NoSpace,
            _ => Fault::Broken,
        }
    }
}

/// The refusals that are right. Where several conditions hold at once POSIX leaves open which is
/// reported, so the model names them all; it is never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Whether this refusal is right.
    pub fn allow(&self, fault: Fault) -> bool {
        self.0.contains(&fault)
    }
}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Faults {
        Faults(vec![fault])
    }
}

impl<const N: usize> From<[Fault; N]> for Faults {
    fn from(faults: [Fault; N]) -> Faults {
        Faults(faults.to_vec())
    }
}

/// Collects every condition that speaks against an operation.
#[derive(Debug, Default)]
pub struct Objections(Vec<Fault>);

impl Objections {
    /// Notes `fault` where `condition` holds.
    pub fn when(&mut self, condition: bool, fault: Fault) -> &mut Objections {
        if condition {
            self.0.push(fault);
        }
        self
    }

    /// Notes several faults, any of which names the condition rightly.
    pub fn any(&mut self, condition: bool, faults: &[Fault]) -> &mut Objections {
        if condition {
            self.0.extend_from_slice(faults);
        }
        self
    }

    /// Notes all of these.
    pub fn all(&mut self, faults: &Faults) -> &mut Objections {
        self.any(true, &faults.0)
    }

    /// Refuses where anything was noted.
    ///
    /// # Errors
    /// All that was noted.
    pub fn settle(&mut self) -> Result<(), Faults> {
        if self.0.is_empty() { Ok(()) } else { Err(Faults(std::mem::take(&mut self.0))) }
    }
}
