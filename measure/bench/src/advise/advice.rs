//! Advice on placement: computes from the load and size of a database's parts what each would gain
//! on fast storage.

use results::placement::{Placement, memory_share};
use serde::Serialize;

/// I/O of a part since the statistics were reset, and its current size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Part {
    pub(super) bytes: f64,
    /// Ratio of its size to the memory it would use in a pool, if sampled.
    pub(super) reduction: Option<f64>,
    pub(super) read_bytes: f64,
    pub(super) written_bytes: f64,
    pub(super) syncs: f64,
}

impl Part {
    fn memory_bytes(&self) -> Option<f64> {
        self.reduction.filter(|it| *it > 0.0).map(|reduction| self.bytes / reduction)
    }
}

/// Parts of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Parts {
    /// Permanent tables and indexes.
    pub(super) data: Part,
    pub(super) logs: Part,
    pub(super) temporary: Part,
}

/// Cost and gain of a placement. Shares are relative to the whole database.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Advice {
    pub(super) placement: &'static str,
    /// Current size on storage.
    pub(super) bytes: f64,
    /// Reduced size in a pool.
    pub(super) memory_bytes: Option<f64>,
    /// Share of the whole database's memory, before reduction if that is unknown.
    pub(super) memory_share: Option<f64>,
    pub(super) read_share: Option<f64>,
    pub(super) write_share: Option<f64>,
    pub(super) sync_share: Option<f64>,
}

impl Advice {
    /// Formats `logs only: 34 % of the writes and 99 % of the syncs for 3.0 % of the memory`.
    pub(super) fn sentence(&self) -> String {
        let percent = |share: Option<f64>, digits: usize| {
            share.map_or_else(|| "?".to_owned(), |share| format!("{:.digits$}", share * 100.0))
        };
        let digits = usize::from(self.memory_share.is_some_and(|share| share < 0.1));
        format!(
            "{}: {} % of the reads, {} % of the writes and {} % of the syncs for {} % of the \
             memory",
            self.placement,
            percent(self.read_share, 0),
            percent(self.write_share, 0),
            percent(self.sync_share, 0),
            percent(self.memory_share, digits),
        )
    }
}

/// Returns advice for the whole database first, then for its separable parts.
pub(super) fn advise(parts: &Parts) -> Vec<Advice> {
    let Parts { data, logs, temporary } = parts;
    let all = [data, logs, temporary];
    let of = |placement: Placement, parts: &[&Part]| {
        let share = |of_part: fn(&Part) -> f64| {
            let sum = |parts: &[&Part]| parts.iter().map(|part| of_part(part)).sum::<f64>();
            let whole = sum(&all);
            (whole > 0.0).then(|| sum(parts) / whole)
        };
        let bytes = |parts: &[&Part]| parts.iter().map(|part| part.bytes).sum::<f64>();
        let memory =
            |parts: &[&Part]| parts.iter().map(|part| part.memory_bytes()).sum::<Option<f64>>();
        let memory_share = match (memory(&all), memory(parts)) {
            (Some(whole), Some(part)) => memory_share(whole, part),
            _ => memory_share(bytes(&all), bytes(parts)),
        };
        Advice {
            placement: placement.words(),
            bytes: bytes(parts),
            memory_bytes: memory(parts),
            memory_share,
            read_share: share(|part| part.read_bytes),
            write_share: share(|part| part.written_bytes),
            sync_share: share(|part| part.syncs),
        }
    };
    vec![
        of(Placement::Whole, &all),
        of(Placement::Logs, &[logs]),
        of(Placement::Temporary, &[temporary]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: Parts = Parts {
        data: Part {
            bytes: 900.0,
            reduction: Some(3.0),
            read_bytes: 800.0,
            written_bytes: 500.0,
            syncs: 10.0,
        },
        logs: Part {
            bytes: 80.0,
            reduction: Some(4.0),
            read_bytes: 0.0,
            written_bytes: 300.0,
            syncs: 990.0,
        },
        temporary: Part {
            bytes: 20.0,
            reduction: Some(0.25),
            read_bytes: 200.0,
            written_bytes: 200.0,
            syncs: 0.0,
        },
    };

    #[test]
    fn shares_are_of_the_whole() {
        let told = advise(&PARTS);
        let [whole, logs, temporary] = &told[..] else { panic!("{told:?}") };
        assert_eq!((whole.bytes, whole.memory_bytes), (1_000.0, Some(400.0)));
        let ones = (Some(1.0), Some(1.0), Some(1.0));
        assert_eq!((whole.read_share, whole.write_share, whole.sync_share), ones);
        assert_eq!((logs.read_share, logs.write_share), (Some(0.0), Some(0.3)));
        assert_eq!((logs.sync_share, logs.memory_share), (Some(0.99), Some(0.05)));
        assert_eq!((temporary.read_share, temporary.write_share), (Some(0.2), Some(0.2)));
        assert_eq!((temporary.sync_share, temporary.memory_share), (Some(0.0), Some(0.2)));
        let expected = "logs only: 0 % of the reads, 30 % of the writes and 99 % of the syncs for \
                        5.0 % of the memory";
        assert_eq!(logs.sentence(), expected);
    }

    #[test]
    fn without_a_sample_shares_of_memory_are_those_before_reduction() {
        let mut parts = PARTS;
        parts.data.reduction = None;
        let told = advise(&parts);
        assert_eq!((told[0].memory_bytes, told[0].memory_share), (None, Some(1.0)));
        assert_eq!((told[1].memory_bytes, told[1].memory_share), (Some(20.0), Some(0.08)));
    }

    #[test]
    fn what_was_never_done_has_no_shares() {
        let told = advise(&Parts::default());
        assert_eq!((told[1].sync_share, told[1].memory_share), (None, None));
        assert!(told[1].sentence().contains("? % of the syncs"));
    }
}
