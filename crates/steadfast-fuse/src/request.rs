//! A request from the kernel: the header, and the arguments after it, taken one by one.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::abi::input::{InHeader, ReadIn, WriteIn};
use crate::abi::{flags, opcode};
use crate::errno::Errno;

/// One request. The bytes stay in the worker's buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) header: InHeader,
    pub(crate) body: &'a [u8],
    /// The whole request, for parsing it again.
    pub(crate) bytes: &'a [u8],
}

impl<'a> Request<'a> {
    /// Splits off the header; `None` if the bytes cannot come from a kernel.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Request<'a>> {
        let (header, body) = InHeader::read_from_prefix(bytes).ok()?;
        (header.len as usize == bytes.len()).then_some(Request { header, body, bytes })
    }

    /// Whether the kernel reads into pages of its cache, or writes back some of them. It keeps them
    /// locked until it has the answer.
    pub(crate) fn is_for_pages(&self) -> bool {
        let mut arguments = self.arguments();
        match self.header.opcode {
            opcode::READ => arguments
                .take::<ReadIn>()
                .is_ok_and(|wanted| wanted.read_flags & flags::read::LOCK_OWNER == 0),
            opcode::WRITE => arguments
                .take::<WriteIn>()
                .is_ok_and(|wanted| wanted.write_flags & flags::write::CACHE != 0),
            _ => false,
        }
    }

    /// The arguments, starting with the first.
    pub(crate) fn arguments(&self) -> Arguments<'a> {
        Arguments(self.body)
    }
}

/// The remaining arguments of a request. A request that is too short gives EINVAL; a correct kernel
/// does not send one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arguments<'a>(&'a [u8]);

impl<'a> Arguments<'a> {
    /// Takes a structure.
    pub(crate) fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Errno> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Errno(libc::EINVAL))?;
        self.0 = rest;
        Ok(value)
    }

    /// Takes a name that ends with a NUL byte.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno(libc::EINVAL))?;
        let (name, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(name)
    }

    /// Takes `length` bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Errno> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Errno(libc::EINVAL))?;
        self.0 = rest;
        Ok(bytes)
    }
}
