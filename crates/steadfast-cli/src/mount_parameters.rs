//! The transaction mask and timer that the options of a mount ask for.

use std::path::Path;

use steadfast::TransactionMask;

use crate::behaviour::Behaviour;
use crate::failure::{Exit, Failure, Outcome};
use crate::mask_text;
use crate::medium::HostVolume;
use crate::mount_options::MountSettings;

impl MountSettings {
    /// Mask and timer, milliseconds; those of the volume where the options name none.
    ///
    /// # Errors
    /// The option is no mask.
    pub fn parameters(&self, volume: &HostVolume, image: &Path) -> Outcome<(TransactionMask, u32)> {
        let (mask, timer_ms) = (volume.mask(), volume.timer_ms());
        if self.read_only {
            return Ok((mask, timer_ms));
        }
        let base = self.behaviour.map_or(mask, Behaviour::mask);
        let mask = match &self.mask {
            // A relative mask changes the mask of the behaviour.
            Some(text) => mask_text::parse(&[text], base).map_err(|line| {
                Failure::new(Exit::Usage, line, image.display(), "see 'steadfast mount --help'")
            })?,
            None => base,
        };
        let behaviours = || self.behaviour.and_then(Behaviour::timer_ms);
        Ok((mask, self.timer_ms.or_else(behaviours).unwrap_or(timer_ms)))
    }
}
