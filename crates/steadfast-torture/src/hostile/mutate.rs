//! Changes to an image: of fields with a known meaning, with corrected checksums, or of any byte.

use super::anatomy::{Anatomy, Found, NODE_HEADER, POINTER, RECORD_HEADER, SLOT, get, set};
use super::choices::Choices;
use super::unpack::unpack;

/// Maximum number of mutations of one image.
const MUTATIONS_MAX: usize = 6;

/// Changes some fields and corrects every checksum above them.
pub fn mutate(image: &mut [u8], choices: &mut Choices<'_>) {
    let anatomy = Anatomy::of(image);
    let count = 1 + choices.below(MUTATIONS_MAX);
    for _ in 0..count {
        match choices.byte() % 16 {
            0 | 1 => metaroot(image, &anatomy, choices),
            2 => record(image, &anatomy, choices),
            3 => superblock(image, &anatomy, choices),
            4..=7 => header_or_slot(image, &anatomy, choices),
            8 | 9 => pointer(image, &anatomy, choices),
            _ => value(image, &anatomy, choices),
        }
        if choices.is_empty() {
            break;
        }
    }
}

/// Changes any bytes, as rot does.
pub fn rot(image: &mut [u8], choices: &mut Choices<'_>) {
    while !choices.is_empty() {
        let at = choices.below(image.len());
        let change = choices.byte();
        image[at] ^= change.max(1);
    }
}

/// Numbers with a meaning on this volume: addresses, sizes, generations.
fn near(image: &[u8], anatomy: &Anatomy) -> Vec<u64> {
    let metaroot = anatomy.metaroot(image)[0];
    let mut numbers = vec![
        anatomy.blocks,
        anatomy.blocks - 1,
        anatomy.log_start,
        anatomy.log_start + anatomy.log_blocks,
        anatomy.block as u64,
        anatomy.node as u64,
        get(image, metaroot + 24, 8),
        get(image, metaroot + 24, 8).wrapping_add(1),
        get(image, metaroot + 32, 8),
        get(image, metaroot + 80, 8),
        16,
        17,
        1 << 32,
        i64::MAX as u64,
    ];
    numbers.extend(
        (0..8).map(|step| anatomy.log_start + anatomy.log_blocks + step * anatomy.blocks / 9),
    );
    numbers
}

fn number(
    image: &mut [u8],
    anatomy: &Anatomy,
    choices: &mut Choices<'_>,
    at: usize,
    length: usize,
) {
    let near = near(image, anatomy);
    let new = choices.number(get(image, at, length), &near);
    set(image, at, length, new);
}

fn pick(image: &[u8], anatomy: &Anatomy, choices: &mut Choices<'_>) -> Option<Found> {
    let mut nodes = anatomy.nodes(image);
    if nodes.is_empty() {
        return None;
    }
    let index = choices.below(nodes.len());
    Some(nodes.swap_remove(index))
}

fn metaroot(image: &mut [u8], anatomy: &Anatomy, choices: &mut Choices<'_>) {
    const FIELDS: [(usize, usize); 20] = [
        (24, 8),
        (32, 8),
        (40, 8),
        (48, 8),
        (72, 4),
        (80, 8),
        (88, 8),
        (96, 8),
        (104, 8),
        (112, 8),
        (120, 8),
        (128, 8),
        (144, 8),
        (152, 4),
        (156, 4),
        (160, 8),
        (168, 8),
        (176, 8),
        (184, 8),
        (192, 8),
    ];
    let copies = anatomy.metaroot(image);
    let (field, length) = FIELDS[choices.below(FIELDS.len())];
    if field == 24 && choices.byte().is_multiple_of(2) {
        // The parity of the generation selects the slot. This one keeps its slot, so its parity
        // stays.
        let old = get(image, copies[0] + 24, 8);
        set(image, copies[0] + 24, 8, old.wrapping_add(2 * (1 + choices.below(1 << 20) as u64)));
    } else {
        number(image, anatomy, choices, copies[0] + field, length);
    }
    anatomy.seal_structure(image, copies);
}

fn superblock(image: &mut [u8], anatomy: &Anatomy, choices: &mut Choices<'_>) {
    const FIELDS: [(usize, usize); 14] = [
        (8, 4),
        (12, 4),
        (32, 8),
        (40, 8),
        (48, 8),
        (56, 8),
        (64, 4),
        (68, 4),
        (72, 4),
        (76, 4),
        (80, 8),
        (88, 8),
        (96, 4),
        (104, 8),
    ];
    let copies = anatomy.superblock(image);
    let (field, length) = FIELDS[choices.below(FIELDS.len())];
    number(image, anatomy, choices, copies[0] + field, length);
    anatomy.seal_structure(image, copies);
}

fn header_or_slot(image: &mut [u8], anatomy: &Anatomy, choices: &mut Choices<'_>) {
    let Some(found) = pick(image, anatomy, choices) else { return };
    let node = found.copies[0];
    let count = anatomy.count(image, node);
    match choices.byte() % 8 {
        0 => {
            const FIELDS: [(usize, usize); 8] =
                [(0, 4), (4, 1), (6, 2), (8, 8), (16, 8), (24, 8), (32, 4), (36, 4)];
            let (field, length) = FIELDS[choices.below(FIELDS.len())];
            number(image, anatomy, choices, node + field, length);
        }
        1 => {
            let slot = node + NODE_HEADER + choices.below(count) * SLOT;
            let (field, length) = [(17, 2), (19, 2)][choices.below(2)];
            number(image, anatomy, choices, slot + field, length);
        }
        2 => {
            // Reduces the number of items, and adjusts the count of live bytes.
            let keep = choices.below(count + 1);
            let live: usize = (0..keep)
                .filter_map(|index| anatomy.value(image, node, index))
                .map(|(_, length)| length)
                .sum();
            set(image, node + 6, 2, keep as u64);
            set(image, node + 36, 4, live as u64);
        }
        3..=5 => {
            // Changes a key so that it stays between its neighbours if possible.
            let slot = node + NODE_HEADER + choices.below(count) * SLOT;
            match choices.byte() % 3 {
                0 => image[slot + 8] = choices.byte() % 24,
                1 => image[slot + 9 + choices.below(8)] ^= 1 << (choices.byte() % 8),
                _ => image[slot + choices.below(8)] ^= 1 << (choices.byte() % 8),
            }
        }
        6 => {
            // Swaps the values of two items.
            let (one, two) = (choices.below(count), choices.below(count));
            for byte in 17..SLOT {
                image.swap(
                    node + NODE_HEADER + one * SLOT + byte,
                    node + NODE_HEADER + two * SLOT + byte,
                );
            }
        }
        _ => {
            let at = node + choices.below(anatomy.node);
            image[at] = choices.byte();
        }
    }
    anatomy.seal(image, &found.path);
}

/// Makes a child pointer lead elsewhere: to a sibling, an ancestor, data, the log, or outside.
fn pointer(image: &mut [u8], anatomy: &Anatomy, choices: &mut Choices<'_>) {
    let branches: Vec<Found> =
        anatomy.nodes(image).into_iter().filter(|found| found.level > 0).collect();
    if branches.is_empty() {
        return;
    }
    let found = &branches[choices.below(branches.len())];
    let node = found.copies[0];
    let count = anatomy.count(image, node);
    let Some((value, POINTER)) = anatomy.value(image, node, choices.below(count)) else { return };
    match choices.byte() % 5 {
        0 => number(image, anatomy, choices, value, 8),
        1 => number(image, anatomy, choices, value + 8, 8),
        2 => number(image, anatomy, choices, value + 16, 8),
        3 => {
            let other = &branches[choices.below(branches.len())];
            let from = other.copies[0];
            let index = choices.below(anatomy.count(image, from));
            if let Some((source, POINTER)) = anatomy.value(image, from, index) {
                image.copy_within(source..source + POINTER, value);
            }
        }
        _ => {
            let root = anatomy.metaroot(image)[0] + 32;
            image.copy_within(root..root + POINTER, value);
        }
    }
    anatomy.seal(image, &found.path);
}

/// Fields of a value by the kind of its key: offset and length.
fn fields(kind: u8) -> &'static [(usize, usize)] {
    match kind {
        1 => &[
            (0, 4),
            (4, 4),
            (12, 4),
            (16, 8),
            (24, 8),
            (32, 8),
            (40, 4),
            (80, 4),
            (84, 4),
            (88, 8),
        ],
        2 => &[(0, 8), (8, 1), (9, 1), (10, 1)],
        3 => &[(0, 4), (4, 1), (5, 4)],
        4 | 5 => &[(0, 1)],
        6 => &[(0, 8), (8, 4), (12, 1), (13, 8), (21, 4)],
        16 => &[(0, 1), (1, 8), (9, 8), (17, 8)],
        19 => &[(0, 8), (8, 4), (12, 8), (20, 8)],
        20 => &[
            (0, 8),
            (8, 8),
            (16, 8),
            (40, 4),
            (56, 8),
            (64, 8),
            (72, 8),
            (80, 8),
            (88, 8),
            (96, 8),
            (104, 8),
        ],
        _ => &[(0, 8), (8, 8)],
    }
}

fn value(image: &mut [u8], anatomy: &Anatomy, choices: &mut Choices<'_>) {
    let leaves: Vec<Found> =
        anatomy.nodes(image).into_iter().filter(|found| found.level == 0).collect();
    if leaves.is_empty() {
        return;
    }
    let found = &leaves[choices.below(leaves.len())];
    let node = found.copies[0];
    let index = choices.below(anatomy.count(image, node));
    let Some((at, length)) = anatomy.value(image, node, index) else { return };
    let kind = image[node + NODE_HEADER + index * SLOT + 8];
    let fields = fields(kind);
    let (field, size) = fields[choices.below(fields.len())];
    if field + size <= length {
        number(image, anatomy, choices, at + field, size);
    } else if length > 0 {
        let byte = at + choices.below(length);
        image[byte] = choices.byte();
    }
    anatomy.seal(image, &found.path);
}

/// Unpacks a packed record, if there is room. Then its keys and the fields of its values are known.
fn unpack_record(image: &mut [u8], anatomy: &Anatomy, (at, payload): &mut (usize, usize)) {
    const PACKED: u64 = 2;
    let flags = get(image, *at + 4, 4);
    let start = *at + RECORD_HEADER;
    let room = anatomy.record_room(*payload);
    if flags & PACKED != 0
        && let Some(plain) =
            unpack(&image[start..start + *payload]).filter(|plain| plain.len() <= room)
    {
        image[start..start + plain.len()].copy_from_slice(&plain);
        *payload = plain.len();
        set(image, *at + 4, 4, flags & !PACKED);
        set(image, *at + 48, 4, plain.len() as u64);
    }
}

/// Changes a field of a log record, or a byte of its mutations, and corrects the chain after it.
fn record(image: &mut [u8], anatomy: &Anatomy, choices: &mut Choices<'_>) {
    let mut records = anatomy.records(image);
    if records.is_empty() {
        return;
    }
    let index = choices.below(records.len());
    if !choices.byte().is_multiple_of(4) {
        unpack_record(image, anatomy, &mut records[index]);
    }
    let (at, payload) = records[index];
    match choices.byte() % 8 {
        0 => {
            const FIELDS: [(usize, usize); 6] =
                [(4, 4), (16, 8), (24, 8), (32, 8), (48, 4), (52, 4)];
            let (field, length) = FIELDS[choices.below(FIELDS.len())];
            number(image, anatomy, choices, at + field, length);
        }
        1 => {
            let byte = at + RECORD_HEADER + choices.below(payload);
            image[byte] = choices.byte();
        }
        _ => {
            // Changes a field of a value that the record puts, or a key.
            let mut mutations = Vec::new();
            let mut next = 0;
            while next + 18 <= payload {
                let start = at + RECORD_HEADER + next;
                let put = image[start + 17] == 1;
                let length = if put { get(image, start + 18, 2) as usize } else { 0 };
                mutations.push((start, length));
                next += if put { 20 + length } else { 18 };
            }
            if mutations.is_empty() {
                return;
            }
            let (start, length) = mutations[choices.below(mutations.len())];
            let fields = fields(image[start + 8]);
            let (field, size) = fields[choices.below(fields.len())];
            match choices.byte() % 4 {
                0 => image[start + 8] = choices.byte() % 24,
                1 => image[start + choices.below(17)] ^= 1 << (choices.byte() % 8),
                _ if field + size <= length => {
                    number(image, anatomy, choices, start + 20 + field, size)
                }
                _ => image[start + 17] ^= 1,
            }
        }
    }
    anatomy.seal_records(image, &records, index);
}
