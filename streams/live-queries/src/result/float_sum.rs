//! Exact sum of doubles, from which added numbers can be subtracted without an error.
//!
//! Consists of non-overlapping partial sums (Shewchuk, "Adaptive Precision Floating-Point
//! Arithmetic", 1997). The result is rounded once, half to even, as by Python's `math.fsum`.

/// Maximum magnitude of an addend: intermediate sums of larger ones could overflow.
pub(super) const ADDEND_MAX: f64 = 1e300;

#[derive(Clone, Debug, Default)]
pub(super) struct FloatSum {
    /// Ordered by increasing magnitude.
    partials: Vec<f64>,
    nan_count: u64,
    infinity_count: u64,
    negative_infinity_count: u64,
}

impl FloatSum {
    /// Adds `number`, whose magnitude must be at most [`ADDEND_MAX`], or which is not finite.
    pub(super) fn add(&mut self, number: f64) {
        match self.special(number) {
            Some(count) => *count += 1,
            None => self.add_finite(number),
        }
    }

    /// Subtracts a number that was added.
    pub(super) fn subtract(&mut self, number: f64) {
        match self.special(number) {
            Some(count) => *count = count.saturating_sub(1),
            None => self.add_finite(-number),
        }
    }

    pub(super) fn total(&self) -> f64 {
        match (self.nan_count, self.infinity_count, self.negative_infinity_count) {
            (0, 0, 0) => self.finite_total(),
            (0, 1.., 0) => f64::INFINITY,
            (0, 0, 1..) => f64::NEG_INFINITY,
            _ => f64::NAN,
        }
    }

    fn special(&mut self, number: f64) -> Option<&mut u64> {
        match number {
            _ if number.is_nan() => Some(&mut self.nan_count),
            f64::INFINITY => Some(&mut self.infinity_count),
            f64::NEG_INFINITY => Some(&mut self.negative_infinity_count),
            _ => None,
        }
    }

    fn add_finite(&mut self, number: f64) {
        let mut carried = number;
        let mut kept = 0;
        for index in 0..self.partials.len() {
            let partial = self.partials[index];
            let (large, small) = match carried.abs() < partial.abs() {
                true => (partial, carried),
                false => (carried, partial),
            };
            let high = large + small;
            let low = small - (high - large);
            if low != 0.0 {
                self.partials[kept] = low;
                kept += 1;
            }
            carried = high;
        }
        self.partials.truncate(kept);
        if carried != 0.0 {
            self.partials.push(carried);
        }
    }

    fn finite_total(&self) -> f64 {
        let mut rest = self.partials.iter().rev().copied();
        let Some(mut high) = rest.next() else { return 0.0 };
        let mut low = 0.0;
        for partial in rest.by_ref() {
            let before = high;
            high = before + partial;
            low = partial - (high - before);
            if low != 0.0 {
                break;
            }
        }
        // A tie between two doubles is decided by the remaining partial sums.
        if rest.next().is_some_and(|it| (it < 0.0) == (low < 0.0) && low != 0.0) {
            let doubled = low * 2.0;
            let rounded = high + doubled;
            if doubled == rounded - high {
                return rounded;
            }
        }
        high
    }
}
