//! The content of a volume, field by field, as lines of text: for debugging the format and for
//! writing a reader.
//!
//! Nothing here changes or repairs anything, and nothing is assumed to be valid. A structure that
//! fails its checks is shown as far as possible, with the reason. Structures are named as in
//! docs/FORMAT.md.

mod log;
mod structures;
#[cfg(test)]
mod tests;
mod value;

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::keyspace::KeyspaceRead;
use crate::error::{Error, Result};
use crate::format::{Node, NodePointer};
use crate::platform::Platform;
use crate::types::{BlockAddress, BlockRun, InodeNumber};
use crate::volume::Volume;

pub use crate::format::key::{Key, Kind};
pub use log::log;
pub use structures::{metaroots, superblocks};

/// Receives one line of text, without its line end.
pub type Lines<'a> = dyn FnMut(String) + 'a;

/// The node whose first copy is at block `address`: header and items. No pointer leads there,
/// so its checksum is shown and not checked.
///
/// # Errors
/// `CorruptMetadata` if there is no node of this volume; the medium's.
pub fn node<M: Medium, P: Platform>(
    volume: &Volume<M, P>,
    address: BlockAddress,
    lines: &mut Lines<'_>,
) -> Result<()> {
    let store = volume.engine.store();
    let run = BlockRun { start: address, count: store.device.superblock.node_blocks() };
    if !store.device.contains(run) {
        return Err(Error::CorruptMetadata {
            address,
            reason: "outside the blocks that can hold a node",
        });
    }
    let mut bytes = vec![0; store.device.superblock.node_size as usize];
    store.device.read_blocks(address, &mut bytes)?;
    let crc = store.device.crc(&bytes);
    let node = Node::from_bytes(bytes, store.device.volume_id())
        .map_err(|reason| Error::CorruptMetadata { address, reason })?;
    lines(format!(
        "node {}: level {}, generation {}, {} items, {} bytes free, crc {crc:#010x}",
        address.0,
        node.level(),
        node.generation().0,
        node.count(),
        node.free(),
    ));
    for index in 0..node.count() {
        match node.level() {
            0 => item(volume, &node.key(index), node.value(index), lines),
            _ => lines(format!("  {:?} -> {}", node.key(index), pointer_text(&node.child(index)))),
        }
    }
    Ok(())
}

/// The value of one key in the state that opening reaches.
///
/// # Errors
/// `NotFound`; those of reading the tree.
pub fn key<M: Medium, P: Platform>(
    volume: &Volume<M, P>,
    key: &Key,
    lines: &mut Lines<'_>,
) -> Result<()> {
    let found = volume.engine.reader()?.get(key)?.ok_or(Error::NotFound)?;
    item(volume, key, &found, lines);
    Ok(())
}

/// Every key of an inode. Inode 0 owns the keys of the volume: bitmaps, orphans.
///
/// # Errors
/// `Stale` if it has none; those of reading the tree.
pub fn inode<M: Medium, P: Platform>(
    volume: &Volume<M, P>,
    inode: InodeNumber,
    lines: &mut Lines<'_>,
) -> Result<()> {
    let _ = volume.engine.replay_overlay();
    let mut from = Key::inode(inode);
    from.0[8..].fill(0);
    let mut last = from;
    last.0[8..].fill(0xff);
    let mut any = false;
    let reader = volume.engine.reader()?;
    while let Some((key, found)) = reader.next(&from, &last)? {
        any = true;
        item(volume, &key, &found, lines);
        match key.successor() {
            Some(next) => from = next,
            None => break,
        }
    }
    if any { Ok(()) } else { Err(Error::Stale(inode)) }
}

/// Every node of the tree that opening reaches, indented by level. Unreadable nodes are marked.
///
/// # Errors
/// None but `OutOfMemory`; damage is reported in the text.
pub fn tree<M: Medium, P: Platform>(volume: &Volume<M, P>, lines: &mut Lines<'_>) -> Result<()> {
    // If the log cannot be replayed, the tree is that of the checkpoint.
    let _ = volume.engine.replay_overlay();
    let store = volume.engine.store();
    let root = volume.engine.working_root();
    let mut left =
        store.device.superblock_now().usable_blocks() / store.device.superblock.node_blocks();
    let mut stack: Vec<(NodePointer, u8, Key)> = vec![(root.pointer, root.level(), Key::MIN)];
    while let Some((pointer, level, low)) = stack.pop() {
        let indent = " ".repeat(2 * usize::from(root.level() - level));
        if left == 0 {
            lines("the tree has more nodes than fit the volume".into());
            return Ok(());
        }
        left -= 1;
        match store.node(&pointer, level) {
            Err(error) => lines(format!(
                "{indent}level {level} from {low:?} {}: {error}",
                pointer_text(&pointer)
            )),
            Ok(node) => {
                lines(format!(
                    "{indent}level {level} from {low:?} {}: {} items, {} bytes free",
                    pointer_text(&pointer),
                    node.count(),
                    node.free()
                ));
                if level > 0 {
                    stack.extend(
                        (0..node.count())
                            .rev()
                            .map(|index| (node.child(index), level - 1, node.key(index))),
                    );
                }
            }
        }
    }
    Ok(())
}

fn item<M: Medium, P: Platform>(
    volume: &Volume<M, P>,
    key: &Key,
    value: &[u8],
    lines: &mut Lines<'_>,
) {
    lines(format!(
        "{key:?}: {}",
        value::text(&volume.engine.store().device.superblock_now(), key, value)
    ));
}

fn pointer_text(pointer: &NodePointer) -> String {
    let copies: Vec<String> = pointer.copies().map(|address| format!("{}", address.0)).collect();
    let crc = u32::from_le_bytes(pointer.digest[..4].try_into().unwrap_or_default());
    format!(
        "blocks {} (generation {}, crc {crc:#010x})",
        copies.join(" and "),
        pointer.generation.0
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
