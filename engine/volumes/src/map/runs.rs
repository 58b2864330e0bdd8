//! Lists of runs of bytes of one kind, for requests that list extents or changes.

use block_device::ByteRange;

/// List of runs with a limit. It holds one run more than the limit, so that the last wanted run is
/// complete.
#[derive(Debug)]
pub(crate) struct Runs<Kind> {
    list: Vec<(ByteRange, Kind)>,
    count_max: usize,
}

impl<Kind: Copy + PartialEq> Runs<Kind> {
    pub(crate) fn new(count_max: usize) -> Self {
        Self { list: Vec::new(), count_max }
    }

    /// Adds bytes at the end of the list.
    pub(crate) fn add(&mut self, from: u64, until: u64, kind: Kind) {
        if from == until {
            return;
        }
        let is_full = self.is_full();
        match self.list.last_mut() {
            Some((range, last)) if *last == kind => range.length += until - from,
            _ if is_full => {}
            _ => self.list.push((ByteRange::new(from, until - from), kind)),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.list.len() > self.count_max
    }

    /// Returns the wanted number of runs.
    pub(crate) fn into_list<Run>(self, run: impl Fn(ByteRange, Kind) -> Run) -> Vec<Run> {
        let wanted = self.list.into_iter().take(self.count_max);
        wanted.map(|(range, kind)| run(range, kind)).collect()
    }
}
