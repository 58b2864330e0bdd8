//! Shared pages that this save has already written.

use crate::format::chunk::Digest;
use crate::names::PageNumber;

/// Number of groups in the table. An entry for a full group evicts another one, which may then be
/// written twice. The table saves space only. Correctness does not depend on it.
const GROUP_COUNT: usize = 1 << 15;

const GROUP_PLACES: usize = 4;

/// Entries whose digests have the same prefix.
type Group = [Option<(Digest, PageNumber)>; GROUP_PLACES];

/// A bounded table from page digests to page numbers.
#[derive(Debug)]
pub(crate) struct SharedPages {
    /// Allocated on first insertion.
    groups: Vec<Group>,
}

impl SharedPages {
    pub(crate) fn new() -> Self {
        Self { groups: Vec::new() }
    }

    pub(crate) fn get(&self, digest: &Digest) -> Option<PageNumber> {
        let group = self.groups.get(group_of(digest))?;
        group.iter().flatten().find(|(known, _)| known == digest).map(|(_, page)| *page)
    }

    pub(crate) fn insert(&mut self, digest: Digest, page: PageNumber) {
        if self.groups.is_empty() {
            self.groups = vec![[None; GROUP_PLACES]; GROUP_COUNT];
        }
        let group = &mut self.groups[group_of(&digest)];
        let free = group.iter().position(|place| place.is_none_or(|(known, _)| known == digest));
        let pushed_out = usize::from(digest[2]) % GROUP_PLACES;
        group[free.unwrap_or(pushed_out)] = Some((digest, page));
    }
}

fn group_of(digest: &Digest) -> usize {
    let (first, _) = digest.split_first_chunk().expect("a digest is longer");
    usize::from(u16::from_le_bytes(*first)) % GROUP_COUNT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_found_by_its_digest_alone() {
        let mut pages = SharedPages::new();
        let number = PageNumber::new(77).expect("short");
        assert_eq!(pages.get(&[5; 32]), None);
        pages.insert([5; 32], number);
        assert_eq!(pages.get(&[5; 32]), Some(number));
        let mut other = [5; 32];
        other[31] = 6;
        assert_eq!(pages.get(&other), None);
    }

    #[test]
    fn a_full_group_forgets_one_of_its_pages() {
        let mut pages = SharedPages::new();
        let digest = |last| {
            let mut digest = [0; 32];
            digest[31] = last;
            digest
        };
        for last in 0..=GROUP_PLACES {
            let last = u8::try_from(last).expect("few");
            pages.insert(digest(last), PageNumber::new(u64::from(last)).expect("short"));
        }
        let found: Vec<u64> =
            (0..9).filter_map(|last| pages.get(&digest(last))).map(PageNumber::get).collect();
        assert_eq!(found, [1, 2, 3, 4]);
    }
}
