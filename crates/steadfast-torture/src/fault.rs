//! The reasons for a refusal, in a form in which model and volume can be compared.

use steadfast::Error;

/// The cause of a refusal without its details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The name does not exist.
    NotFound,
    /// The name exists.
    AlreadyExists,
    /// The object is not a directory.
    NotADirectory,
    /// The object is a directory.
    IsADirectory,
    /// The directory has entries.
    DirectoryNotEmpty,
    /// The object is not a regular file.
    NotARegularFile,
    /// Name too long.
    NameTooLong,
    /// The bytes are not a valid name.
    InvalidName,
    /// Value too long.
    ValueTooLong,
    /// An argument is out of range.
    InvalidArgument,
    /// The offset is beyond the largest file size.
    FileTooLarge,
    /// A directory would move below itself.
    MoveIntoSelf,
    /// The attribute does not exist.
    NoAttribute,
    /// There is no data or hole after the offset.
    NoSuchOffset,
    /// The inode no longer exists.
    Stale,
    /// Not allowed on this object.
    NotPermitted,
    /// Not supported.
    Unsupported,
    /// Newer snapshots would be destroyed.
    NewerSnapshots,
    /// An atomic command is running.
    Held,
    /// The volume cannot have this size.
    Size,
    /// No space.
    NoSpace,
    /// Every error that a healthy volume on a healthy medium never returns.
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

/// The correct refusals. If several conditions hold at once, POSIX leaves open which one is
/// reported, so the model names all of them. The list is never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Whether this refusal is correct.
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

/// Collects every condition that forbids an operation.
#[derive(Debug, Default)]
pub struct Objections(Vec<Fault>);

impl Objections {
    /// Notes `fault` if `condition` holds.
    pub fn when(&mut self, condition: bool, fault: Fault) -> &mut Objections {
        if condition {
            self.0.push(fault);
        }
        self
    }

    /// Notes several faults, each of which correctly names the condition.
    pub fn any(&mut self, condition: bool, faults: &[Fault]) -> &mut Objections {
        if condition {
            self.0.extend_from_slice(faults);
        }
        self
    }

    /// Notes all of these faults.
    pub fn all(&mut self, faults: &Faults) -> &mut Objections {
        self.any(true, &faults.0)
    }

    /// Refuses the operation if anything was noted.
    ///
    /// # Errors
    /// All noted faults.
    pub fn check(&mut self) -> Result<(), Faults> {
        if self.0.is_empty() { Ok(()) } else { Err(Faults(std::mem::take(&mut self.0))) }
    }
}
