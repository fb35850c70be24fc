//! The mutable state of a simulated medium, behind one lock.

use alloc::vec::Vec;

use super::fault::{Action, Fault};
use super::in_flight::{Content, InFlight, Survival, torn};
use super::options::{Recording, SimOptions};
use super::record::{Counters, Outcome, Record};
use crate::pages::PagedImage;
use crate::random::Random;
use crate::sync::Arc;
use crate::{ErrorClass, MediumError, MediumOperation, Temperature};

/// A request as received.
pub(super) struct Request {
    pub(super) operation: MediumOperation,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) buffers: usize,
    pub(super) fua: bool,
    pub(super) temperature: Option<Temperature>,
}

pub(super) struct State {
    pub(super) options: SimOptions,
    /// Contents that reads return.
    pub(super) current: PagedImage,
    /// Contents that certainly survive a power cut.
    pub(super) durable: PagedImage,
    pub(super) in_flight: InFlight,
    pub(super) faults: Vec<Fault>,
    pub(super) counters: Counters,
    pub(super) records: Vec<Record>,
    /// Number of the next request.
    pub(super) sequence: u64,
    /// The request that is interrupted by a power cut.
    pub(super) cut_at: Option<u64>,
    pub(super) off: bool,
    random: Random,
}

impl State {
    pub(super) fn new(options: SimOptions, image: PagedImage) -> Self {
        State {
            random: Random::new(options.seed),
            options,
            current: image.clone(),
            durable: image,
            in_flight: InFlight::default(),
            faults: Vec::new(),
            counters: Counters::default(),
            records: Vec::new(),
            sequence: 0,
            cut_at: None,
            off: false,
        }
    }

    /// Carries out a read.
    pub(super) fn read(
        &mut self,
        request: &Request,
        buffers: &mut [&mut [u8]],
    ) -> Result<(), MediumError> {
        let action = self.begin(request, None)?;
        if let Some(Action::Fail(class) | Action::FailTorn(class)) = action {
            return Err(self.refuse(request, None, class));
        }
        let mut at = match action {
            Some(Action::Misdirect(elsewhere)) => self.elsewhere(request, elsewhere),
            _ => request.offset,
        };
        for buffer in buffers {
            if let Some(Action::Lose | Action::Tear) = action {
                buffer.fill(0);
            } else {
                self.current.read(at, buffer);
            }
            at += buffer.len() as u64;
        }
        self.record(request, None, Outcome::Done);
        Ok(())
    }

    /// Carries out a write.
    pub(super) fn write(&mut self, request: &Request, data: Arc<[u8]>) -> Result<(), MediumError> {
        let action = self.begin(request, Some(&data))?;
        let payload = Some(&data);
        let content = Content::Bytes(data.clone());
        match action {
            None => self.put(request.offset, content, request.fua),
            Some(Action::Misdirect(elsewhere)) => {
                let elsewhere = self.elsewhere(request, elsewhere);
                self.put(elsewhere, content, request.fua);
            }
            Some(Action::Lose) => {}
            Some(Action::Tear) => self.put_torn(request.offset, &data, request.fua),
            Some(Action::Fail(class)) => return Err(self.refuse(request, payload, class)),
            Some(Action::FailTorn(class)) => {
                self.put_torn(request.offset, &data, false);
                return Err(self.refuse(request, payload, class));
            }
        }
        self.record(request, payload, Outcome::Done);
        Ok(())
    }

    /// Carries out a flush.
    pub(super) fn flush(&mut self, request: &Request) -> Result<(), MediumError> {
        match self.begin(request, None)? {
            Some(Action::Fail(class) | Action::FailTorn(class)) => {
                return Err(self.refuse(request, None, class));
            }
            Some(Action::Lose | Action::Tear) => {}
            None | Some(Action::Misdirect(_)) => {
                if !self.options.ignore_flushes {
                    // All pages are shared: nothing is copied here.
                    self.durable = self.current.clone();
                    self.in_flight.clear();
                }
            }
        }
        self.record(request, None, Outcome::Done);
        Ok(())
    }

    /// Carries out a discard.
    pub(super) fn discard(&mut self, request: &Request) -> Result<(), MediumError> {
        let action = self.begin(request, None)?;
        if let Some(Action::Fail(class) | Action::FailTorn(class)) = action {
            return Err(self.refuse(request, None, class));
        }
        if let (Some(byte), None | Some(Action::Misdirect(_))) = (self.options.discard_fill, action)
            && request.length > 0
        {
            let content = Content::Fill { length: request.length, byte };
            self.put(request.offset, content, false);
        }
        self.record(request, None, Outcome::Done);
        Ok(())
    }

    /// Counts a request and determines its fault. The power may fail here, with the request in
    /// flight.
    fn begin(
        &mut self,
        request: &Request,
        data: Option<&Arc<[u8]>>,
    ) -> Result<Option<Action>, MediumError> {
        if self.off {
            return Err(self.refuse(request, data, ErrorClass::Gone));
        }
        self.counters.count(request.operation, request.length, request.fua);
        if self.cut_at == Some(self.sequence) {
            self.off = true;
            match (data, self.options.discard_fill) {
                (Some(data), _) => {
                    self.in_flight.push(request.offset, Content::Bytes(data.clone()))
                }
                (None, Some(byte)) if request.operation == MediumOperation::Discard => {
                    self.in_flight
                        .push(request.offset, Content::Fill { length: request.length, byte });
                }
                _ => {}
            }
            return Err(self.refuse(request, data, ErrorClass::Gone));
        }
        Ok(Fault::choose(&mut self.faults, request.operation, request.offset, request.length))
    }

    /// The offset of a misdirected request. The test that armed the fault must name a valid offset.
    fn elsewhere(&self, request: &Request, offset: u64) -> u64 {
        let inside = offset.checked_add(request.length).is_some_and(|end| end <= self.options.size);
        let aligned = offset.is_multiple_of(u64::from(self.options.atomic_unit));
        assert!(inside && aligned, "cannot misdirect {} bytes to {offset}", request.length);
        offset
    }

    /// Stores content where reads see it, and also as a write in flight or in the durable image.
    fn put(&mut self, offset: u64, content: Content, fua: bool) {
        let length = match &content {
            Content::Bytes(bytes) => {
                self.current.write(offset, bytes);
                bytes.len() as u64
            }
            Content::Fill { length, byte } => {
                self.current.fill(offset, *length, *byte);
                *length
            }
        };
        if fua && !self.options.ignore_flushes {
            if let Content::Bytes(bytes) = &content {
                self.durable.write(offset, bytes);
            }
            self.in_flight.make_durable(offset, length, u64::from(self.options.atomic_unit));
        } else {
            self.in_flight.push(offset, content);
        }
    }

    fn put_torn(&mut self, offset: u64, data: &Arc<[u8]>, fua: bool) {
        let mut parts = Vec::new();
        let unit = u64::from(self.options.atomic_unit);
        torn(&mut self.random, data.len() as u64, unit, |start, length| {
            parts.push((start, length))
        });
        for (start, length) in parts {
            let part = &data[start as usize..(start + length) as usize];
            self.put(offset + start, Content::Bytes(part.into()), fua);
        }
    }

    /// Records a request that failed.
    fn refuse(
        &mut self,
        request: &Request,
        payload: Option<&Arc<[u8]>>,
        class: ErrorClass,
    ) -> MediumError {
        self.record(request, payload, Outcome::Failed(class));
        let Request { operation, offset, length, .. } = *request;
        MediumError { operation, offset, length, class, os_error: 0 }
    }

    fn record(&mut self, request: &Request, payload: Option<&Arc<[u8]>>, outcome: Outcome) {
        let sequence = self.sequence;
        self.sequence += 1;
        if self.options.recording == Recording::Off {
            return;
        }
        let payload = payload.filter(|_| self.options.recording == Recording::Payload).cloned();
        self.records.push(Record {
            sequence,
            operation: request.operation,
            offset: request.offset,
            length: request.length,
            buffers: request.buffers,
            fua: request.fua,
            temperature: request.temperature,
            payload,
            outcome,
        });
    }

    /// Changes bytes in place: in the contents for reads and in the durable contents.
    pub(super) fn alter(&mut self, offset: u64, length: usize, change: impl Fn(&mut [u8])) {
        let mut bytes = alloc::vec![0; length];
        for image in [&mut self.current, &mut self.durable] {
            image.read(offset, &mut bytes);
            change(&mut bytes);
            image.write(offset, &bytes);
        }
    }

    pub(super) fn survivors(&self, survival: Survival) -> PagedImage {
        let unit = u64::from(self.options.atomic_unit);
        self.in_flight.survivors(&self.durable, survival, unit, self.options.garbage_in_flight)
    }
}
