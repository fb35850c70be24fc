//! A [`ReadPlan`] on its way from the owner to a peer, in the byte order of the machine like
//! everything that nodes exchange.

use steadfast::fs::{PlannedExtent, ReadPlan};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The start of a plan. Its extents follow, then the checksums of all of them.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct PlanHead {
    length: u32,
    granule: u32,
    extents: u32,
    skip: u32,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct WireExtent {
    position: u64,
    at: u32,
    checksums: u32,
}

/// The bytes of a plan.
pub(crate) fn encode(plan: &ReadPlan) -> Vec<u8> {
    let head = PlanHead {
        length: plan.length as u32,
        granule: plan.granule,
        extents: plan.extents.len() as u32,
        skip: plan.skip as u32,
    };
    let mut bytes = head.as_bytes().to_vec();
    for extent in &plan.extents {
        let (at, checksums) = (extent.at as u32, extent.checksums.len() as u32);
        let extent = WireExtent { position: extent.position, at, checksums };
        bytes.extend_from_slice(extent.as_bytes());
    }
    for extent in &plan.extents {
        bytes.extend_from_slice(extent.checksums.as_bytes());
    }
    bytes
}

/// The plan in these bytes; `None` if there is none.
pub(crate) fn decode(bytes: &[u8]) -> Option<ReadPlan> {
    let (head, rest) = PlanHead::read_from_prefix(bytes).ok()?;
    let split = (head.extents as usize).checked_mul(size_of::<WireExtent>())?;
    let (extents, mut checksums) = rest.split_at_checked(split)?;
    let mut take = |extent: &[u8]| {
        let extent = WireExtent::read_from_bytes(extent).ok()?;
        let length = (extent.checksums as usize).checked_mul(size_of::<u32>())?;
        let (own, others) = checksums.split_at_checked(length)?;
        checksums = others;
        let mut checksums = <[u32]>::new_box_zeroed_with_elems(extent.checksums as usize).ok()?;
        checksums.as_mut_bytes().copy_from_slice(own);
        let (at, position) = (extent.at as usize, extent.position);
        Some(PlannedExtent { at, position, checksums: checksums.into_vec() })
    };
    let extents = extents.chunks(size_of::<WireExtent>()).map(&mut take).collect::<Option<_>>()?;
    let (skip, length, granule) = (head.skip as usize, head.length as usize, head.granule);
    checksums.is_empty().then_some(ReadPlan { skip, length, granule, extents })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_the_wire_and_pieces_of_it_do_not() {
        let extent = |at, checksums| PlannedExtent { at, position: 1 << 40, checksums };
        let extents =
            vec![extent(0, vec![1, 2, u32::MAX]), extent(20_480, vec![]), extent(24_576, vec![9])];
        let plan = ReadPlan { skip: 7, length: 28_000, granule: 4096, extents };
        let bytes = encode(&plan);
        assert_eq!(decode(&bytes), Some(plan));
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), None, "{length} bytes");
        }
        assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
        // Counts that need more memory than there is.
        let head = PlanHead { length: 1, granule: 1, extents: u32::MAX, skip: 0 };
        assert_eq!(decode(head.as_bytes()), None);
        let much = WireExtent { position: 0, at: 0, checksums: u32::MAX };
        let head = PlanHead { extents: 1, ..head };
        assert_eq!(decode(&[head.as_bytes(), much.as_bytes()].concat()), None);
    }
}
