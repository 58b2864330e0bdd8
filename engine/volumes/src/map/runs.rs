//! Lists of runs of bytes of one kind, as requests for them answer.

use block_device::ByteRange;

/// A list of runs that grows until it is one longer than wanted: then its last is complete.
#[derive(Debug)]
pub(crate) struct Runs<Kind> {
    list: Vec<(ByteRange, Kind)>,
    count_max: usize,
}

impl<Kind: Copy + PartialEq> Runs<Kind> {
    pub(crate) fn new(count_max: usize) -> Self {
        Self { list: Vec::new(), count_max }
    }

    /// Adds the bytes from the end of the list on.
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

    /// The runs that were wanted.
    pub(crate) fn into_list<Run>(self, run: impl Fn(ByteRange, Kind) -> Run) -> Vec<Run> {
        let wanted = self.list.into_iter().take(self.count_max);
        wanted.map(|(range, kind)| run(range, kind)).collect()
    }
}
