//! The transaction mask and timer that a mount asks for.

use steadfast::{Platform, Result, TransactionMask, Volume};
use steadfast_media::Medium;

/// Puts mask and timer (milliseconds) in force and stores them, with every other change since the
/// last transaction point. Values that already match are not set: a set would write, and replay the
/// log into the tree now.
///
/// # Errors
/// As [`Volume::set_mask`], [`Volume::set_timer_ms`] and [`Volume::keep_parameters`].
pub fn store<M: Medium, P: Platform>(
    volume: &Volume<M, P>,
    (mask, timer_ms): (TransactionMask, u32),
) -> Result<()> {
    if (mask, timer_ms) == (volume.mask(), volume.timer_ms()) {
        return Ok(());
    }
    volume.set_mask(mask)?;
    volume.set_timer_ms(timer_ms)?;
    volume.keep_parameters(true).map(drop)
}
