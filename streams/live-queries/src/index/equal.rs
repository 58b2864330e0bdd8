//! Hash index of filters by the values that some expressions must equal.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::error::RowError;
use crate::expr::Expr;
use crate::index::bucket::Bucket;
use crate::index::id::FilterId;
use crate::query::Access;
use crate::row::Row;
use crate::scalar::Value;

/// All filters with equality conditions on the same expressions.
#[derive(Debug)]
pub(super) struct EqualGroup {
    pub(super) keys: Vec<Expr>,
    /// Buckets by the hash of the values. Collisions are resolved by comparing the values.
    buckets: HashMap<u64, Vec<EqualBucket>>,
    hashes: RandomState,
}

#[derive(Debug)]
struct EqualBucket {
    values: Vec<Value<'static>>,
    bucket: Bucket,
}

impl EqualGroup {
    pub(super) fn new(keys: Vec<Expr>) -> Self {
        Self { keys, buckets: HashMap::new(), hashes: RandomState::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Inserts a filter for each combination of one value per key.
    pub(super) fn insert(&mut self, access: &Access, id: FilterId) {
        for_combinations(access, |values| {
            let buckets = self.buckets.entry(hash(&self.hashes, values)).or_default();
            let at = buckets.iter().position(|it| are_equal(&it.values, values));
            let at = at.unwrap_or_else(|| {
                buckets.push(EqualBucket { values: values.to_vec(), bucket: Bucket::default() });
                buckets.len() - 1
            });
            buckets[at].bucket.insert(access, id);
        });
    }

    pub(super) fn remove(&mut self, access: &Access, id: FilterId) {
        for_combinations(access, |values| {
            let hash = hash(&self.hashes, values);
            let Some(buckets) = self.buckets.get_mut(&hash) else { return };
            for found in buckets.iter_mut().filter(|it| are_equal(&it.values, values)) {
                found.bucket.remove(access, id);
            }
            buckets.retain(|it| !it.bucket.is_empty());
            if buckets.is_empty() {
                self.buckets.remove(&hash);
            }
        });
    }

    /// Same as [`Bucket::find`]. `values` is a reused buffer for the values of the row.
    pub(super) fn find<'a>(
        &'a self,
        row: &Row<'a>,
        values: &mut Vec<Value<'a>>,
        found: &mut impl FnMut(FilterId, Result<(), RowError>),
    ) {
        values.clear();
        for key in &self.keys {
            match key.evaluate(row) {
                Ok(Value::Null) => return,
                Ok(value) => values.push(value),
                Err(error) => return self.fail(values, error, found),
            }
        }
        for found_bucket in self.buckets.get(&hash(&self.hashes, values)).into_iter().flatten() {
            if are_equal(&found_bucket.values, values) {
                found_bucket.bucket.find(row, found);
            }
        }
    }

    /// Reports an evaluation error of a key to each filter whose preceding keys match, once.
    fn fail(
        &self,
        before: &[Value<'_>],
        error: RowError,
        found: &mut impl FnMut(FilterId, Result<(), RowError>),
    ) {
        let buckets = self.buckets.values().flatten();
        let buckets = buckets.filter(|it| are_equal(&it.values[..before.len()], before));
        let mut failed: Vec<FilterId> = buckets.flat_map(|it| it.bucket.all()).collect();
        failed.sort_unstable();
        failed.dedup();
        failed.into_iter().for_each(|it| found(it, Err(error)));
    }
}

fn for_combinations(access: &Access, mut each: impl FnMut(&[Value<'static>])) {
    let lists: Vec<&[Value<'static>]> = access.equal.iter().map(|(_, it)| it.as_slice()).collect();
    let mut places = vec![0; lists.len()];
    loop {
        let values = lists.iter().zip(&places).map(|(list, at)| list[*at].clone());
        each(&values.collect::<Vec<_>>());
        let mut digit = 0;
        loop {
            if digit == lists.len() {
                return;
            }
            places[digit] += 1;
            if places[digit] < lists[digit].len() {
                break;
            }
            places[digit] = 0;
            digit += 1;
        }
    }
}

fn hash(hashes: &RandomState, values: &[Value<'_>]) -> u64 {
    let mut hasher = hashes.build_hasher();
    values.iter().for_each(|it| it.hash_into(&mut hasher));
    hasher.finish()
}

fn are_equal(left: &[Value<'_>], right: &[Value<'_>]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|(left, right)| left.order(right).is_eq())
}
