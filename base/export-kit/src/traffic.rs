//! Traffic of clients, with the same counters for every export.

use std::iter::Sum;
use std::ops::AddAssign;

use sync::Tally;
use sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Requests and bytes since the start of a connection, of a device or of an export.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Traffic {
            $($(#[$doc])* pub $name: u64,)*
            /// Requests of any kind that were answered with an error.
            pub errors: u64,
        }

        /// Counters of one connection, queue or thread, on separate cache lines.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $($(#[$doc])* pub $name: Tally,)*
            errors: AtomicU64,
        }

        impl Counters {
            pub fn traffic(&self) -> Traffic {
                Traffic {
                    $($name: self.$name.get(),)*
                    errors: self.errors.load(Ordering::Relaxed),
                }
            }
        }

        impl AddAssign for Traffic {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
                self.errors += other.errors;
            }
        }
    };
}

// Counters of requests that an export does not have stay zero.
counts! {
    reads,
    writes,
    flushes,
    /// Discards, which NBD calls trims.
    discards,
    /// Writes of zeros.
    zeroes,
    /// Block status queries (NBD).
    block_statuses,
    /// Requests for names, attributes and handles (FUSE).
    others,
    /// Requests that an earlier process had started and not answered (vhost-user).
    repeated,
    /// Messages by which clients woke the server's thread (ring).
    doorbells,
    read_bytes,
    written_bytes,
}

impl Counters {
    /// Number of requests of all kinds that concern data or files.
    pub fn request_count(&self) -> u64 {
        let Self { reads, writes, flushes, discards, zeroes, others, .. } = self;
        [reads, writes, flushes, discards, zeroes, others].into_iter().map(Tally::get).sum()
    }

    /// Counts requests that were answered with an error; thread-safe.
    pub fn count_errors(&self, count: u64) {
        // Relaxed: it is a statistic.
        self.errors.fetch_add(count, Ordering::Relaxed);
    }

    pub fn count_error(&self) {
        self.count_errors(1);
    }
}

impl Sum for Traffic {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, traffic| {
            sum += traffic;
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_threads_counted_is_summed() {
        let all = [Counters::default(), Counters::default()];
        all[0].reads.add(1);
        all[1].reads.add(2);
        all[1].read_bytes.add(8192);
        all[1].count_error();
        let expected = Traffic { reads: 3, read_bytes: 8192, errors: 1, ..Traffic::default() };
        assert_eq!(all.iter().map(Counters::traffic).sum::<Traffic>(), expected);
        assert_eq!(all[1].request_count(), 2);
    }
}
