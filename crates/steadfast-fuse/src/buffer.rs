//! Aligned buffers of a worker, so that media with direct I/O read and write file data without a
//! copy. The buffers take physical memory only as they are used.

use std::io;

use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::abi::input::{InHeader, WriteIn};

/// Largest data of one READ or WRITE.
pub(crate) const DATA_MAX: usize = 1 << 20;
pub(crate) const PAGE: usize = 4096;
/// Bytes before the data of a WRITE request.
const WRITE_PREFIX: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// Zeroed pages. The allocation has the type of bytes, because the system then supplies zeroed
/// pages without touching them. An allocation of an aligned type would be filled explicitly.
pub(crate) struct Pages {
    memory: Box<[u8]>,
    start: usize,
    length: usize,
}

impl Pages {
    pub(crate) fn new(count: usize) -> io::Result<Pages> {
        let length = count * PAGE;
        let memory = <[u8]>::new_box_zeroed_with_elems(length + PAGE);
        let memory = memory.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let start = memory.as_ptr().addr().wrapping_neg() % PAGE;
        Ok(Pages { memory, start, length })
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.length]
    }

    /// The allocation, and the offset of the pages in it.
    pub(crate) fn into_raw(self) -> (*mut [u8], usize) {
        (Box::into_raw(self.memory), self.start)
    }
}

/// Size of a huge page on common processors. If huge pages are larger or unavailable, the memory
/// consists of ordinary pages.
const HUGE: usize = 2 * DATA_MAX;

/// The memory of a device worker: one part receives requests, the other builds answers. The data of
/// a WRITE and the data of a READ are adjacent.
pub(crate) struct WorkerBuffers {
    memory: Box<[u8]>,
    /// Offset of the data of a WRITE.
    data: usize,
}

impl WorkerBuffers {
    /// Both data areas are halves of one huge page, if the system has one. A device then gets one
    /// piece of memory instead of 256, which makes direct I/O of 1 MiB about twice as fast. A huge
    /// page takes all of its memory on the first access.
    pub(crate) fn huge() -> io::Result<WorkerBuffers> {
        let mut buffers = WorkerBuffers::aligned(HUGE)?;
        let page = buffers.memory[buffers.data..][..HUGE].as_mut_ptr();
        // SAFETY: the range consists of whole pages inside an allocation that this code owns
        // exclusively. The advice does not change the contents.
        #[allow(unsafe_code)]
        unsafe {
            // A failure only costs speed.
            libc::madvise(page.cast(), HUGE, libc::MADV_HUGEPAGE);
        }
        Ok(buffers)
    }

    /// Uses ordinary pages, which take memory as they are used.
    pub(crate) fn small() -> io::Result<WorkerBuffers> {
        WorkerBuffers::aligned(PAGE)
    }

    fn aligned(alignment: usize) -> io::Result<WorkerBuffers> {
        let memory = <[u8]>::new_box_zeroed_with_elems(PAGE + alignment + 2 * DATA_MAX);
        let memory = memory.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let address = memory.as_ptr().addr();
        let data = (address + PAGE).next_multiple_of(alignment) - address;
        Ok(WorkerBuffers { memory, data })
    }

    /// The buffer for a request, and the buffer for its answer. The data of a WRITE starts on a
    /// page boundary, and so does the answer.
    pub(crate) fn split(&mut self) -> (&mut [u8], &mut [u8]) {
        let (request, answer) =
            self.memory[..self.data + 2 * DATA_MAX].split_at_mut(self.data + DATA_MAX);
        (&mut request[self.data - WRITE_PREFIX..], answer)
    }
}

/// The buffer for requests. The data of a WRITE request starts on a page boundary.
pub(crate) struct RequestBuffer(Pages);

impl RequestBuffer {
    pub(crate) fn new() -> io::Result<RequestBuffer> {
        Pages::new(DATA_MAX / PAGE + 2).map(RequestBuffer)
    }

    /// The bytes to receive into.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.0.bytes()[PAGE - WRITE_PREFIX..]
    }
}

/// The buffer for an answer. Structures and names are appended; file data is read into place.
pub(crate) struct AnswerBuffer<'a> {
    bytes: &'a mut [u8],
    length: usize,
    /// See [`put_plan`](Self::put_plan).
    planned: Option<usize>,
}

impl<'a> AnswerBuffer<'a> {
    /// Creates an empty answer in this memory.
    pub(crate) fn new(bytes: &'a mut [u8]) -> AnswerBuffer<'a> {
        AnswerBuffer { bytes, length: 0, planned: None }
    }

    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub(crate) fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }

    /// The number of appended bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// The next `length` bytes, or fewer at the end of the buffer. The caller fills them and then
    /// keeps them with [`advance`](Self::advance).
    pub(crate) fn space(&mut self, length: usize) -> &mut [u8] {
        let start = self.length;
        let end = self.bytes.len().min(start.saturating_add(length));
        &mut self.bytes[start..end]
    }

    pub(crate) fn advance(&mut self, length: usize) {
        self.length = (self.length + length).min(self.bytes.len());
    }

    /// Appends bytes. If they do not fit, it appends none and returns `false`.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> bool {
        let space = self.space(bytes.len());
        if space.len() < bytes.len() {
            return false;
        }
        space.copy_from_slice(bytes);
        self.advance(bytes.len());
        true
    }

    /// Appends a plan ([`crate::planned`]) in place of this number of bytes of a file.
    pub(crate) fn put_plan(&mut self, plan: &[u8], stands_for: usize) -> bool {
        self.planned = Some(stands_for);
        self.append(plan)
    }

    /// The number of bytes that a plan stands for, if the answer is one.
    pub(crate) fn planned(&self) -> Option<usize> {
        self.planned
    }

    /// Appends a structure, which always fits before the data.
    pub(crate) fn put<T: IntoBytes + Immutable>(&mut self, value: &T) -> bool {
        self.append(value.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_write_is_page_aligned() {
        let mut buffer = RequestBuffer::new().unwrap();
        let bytes = buffer.bytes();
        assert_eq!(bytes[WRITE_PREFIX..].as_ptr().addr() % PAGE, 0);
        assert!(bytes.len() >= DATA_MAX + WRITE_PREFIX);
    }

    #[test]
    fn data_of_a_worker_lies_in_one_huge_page() {
        for (buffers, alignment) in [(WorkerBuffers::huge(), HUGE), (WorkerBuffers::small(), PAGE)]
        {
            let mut buffers = buffers.unwrap();
            let (request, answer) = buffers.split();
            let data = request[WRITE_PREFIX..].as_ptr().addr();
            assert_eq!((data % alignment, answer.as_ptr().addr()), (0, data + DATA_MAX));
            assert_eq!((request.len(), answer.len()), (DATA_MAX + WRITE_PREFIX, DATA_MAX));
            request.fill(1);
            answer.fill(2);
            assert!(buffers.split().0.iter().all(|byte| *byte == 1));
        }
    }

    #[test]
    fn append_never_overflows() {
        let mut pages = Pages::new(DATA_MAX / PAGE).unwrap();
        let mut buffer = AnswerBuffer::new(pages.bytes());
        assert!(buffer.append(&[1; 10]));
        assert!(!buffer.append(&vec![0; DATA_MAX]));
        assert_eq!(buffer.filled(), [1; 10]);
    }
}
