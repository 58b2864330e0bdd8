//! Bounds of value ranges, and their comparison.

use std::cmp::Ordering;
use std::ops::Bound;

use crate::scalar::Value;

/// Values between two bounds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) low: Bound<Value<'static>>,
    pub(crate) high: Bound<Value<'static>>,
}

impl Interval {
    pub(super) const ALL: Self = Self { low: Bound::Unbounded, high: Bound::Unbounded };

    pub(super) fn is_closed(&self) -> bool {
        self.low != Bound::Unbounded && self.high != Bound::Unbounded
    }

    pub(super) fn intersect(self, other: Self) -> Self {
        let low = match order_low(&self.low, &other.low) {
            Ordering::Less => other.low,
            _ => self.low,
        };
        let high = match order_high(&self.high, &other.high) {
            Ordering::Greater => other.high,
            _ => self.high,
        };
        Self { low, high }
    }
}

/// Returns whether `value` satisfies the lower bound.
pub(crate) fn is_above(low: &Bound<Value<'_>>, value: &Value<'_>) -> bool {
    match low {
        Bound::Unbounded => true,
        Bound::Included(bound) => value.order(bound).is_ge(),
        Bound::Excluded(bound) => value.order(bound).is_gt(),
    }
}

/// Returns whether `value` satisfies the upper bound.
pub(crate) fn is_below(high: &Bound<Value<'_>>, value: &Value<'_>) -> bool {
    match high {
        Bound::Unbounded => true,
        Bound::Included(bound) => value.order(bound).is_le(),
        Bound::Excluded(bound) => value.order(bound).is_lt(),
    }
}

/// Orders lower bounds.
pub(crate) fn order_low(left: &Bound<Value<'_>>, right: &Bound<Value<'_>>) -> Ordering {
    order_bounds(left, right, Ordering::Less, Ordering::Greater)
}

/// Orders upper bounds.
pub(crate) fn order_high(left: &Bound<Value<'_>>, right: &Bound<Value<'_>>) -> Ordering {
    order_bounds(left, right, Ordering::Greater, Ordering::Less)
}

/// `unbounded` is the order of an absent bound relative to any other, and `excluded` that of an
/// exclusive bound relative to an inclusive one with the same value.
fn order_bounds(
    left: &Bound<Value<'_>>,
    right: &Bound<Value<'_>>,
    unbounded: Ordering,
    excluded: Ordering,
) -> Ordering {
    use Bound::{Excluded, Included, Unbounded};
    match (left, right) {
        (Unbounded, Unbounded) => Ordering::Equal,
        (Unbounded, _) => unbounded,
        (_, Unbounded) => unbounded.reverse(),
        (Included(left), Included(right)) | (Excluded(left), Excluded(right)) => left.order(right),
        (Excluded(left), Included(right)) => left.order(right).then(excluded),
        (Included(left), Excluded(right)) => left.order(right).then(excluded.reverse()),
    }
}
