//! Start position of a subscription in the log.

use live_queries::{AsOf, Point, Reach, Subscribe};
use record_log::Partition;
use sql::{SqlError, SqlState};

use crate::topics::OpenTopic;

/// Position in all partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// Next offset of each partition.
    pub(super) positions: Vec<(i32, i64)>,
    /// Unix milliseconds.
    pub(super) time_ms: i64,
}

impl Start {
    /// Returns the start of a subscription to a log: the end, the point in AS OF, or the beginning
    /// for a replay. Reads the log.
    ///
    /// # Errors
    /// The log starts after that point, or ends before it.
    pub(super) fn of_log(
        topic: &OpenTopic,
        subscribe: &Subscribe,
        now_ms: i64,
    ) -> Result<Self, SqlError> {
        let partitions = std::sync::Arc::clone(&topic.partitions());
        check_numbers(subscribe.as_of.as_ref(), partitions.len())?;
        let mut positions = Vec::with_capacity(partitions.len());
        let mut time_ms = now_ms;
        for partition in partitions.iter() {
            let log = &partition.log;
            let number = i32::try_from(log.number()).expect("partitions have a limit");
            let offset = match &subscribe.as_of {
                Some(as_of) => place_of(log, number, as_of)?,
                None if subscribe.options.speed.is_some() => log.start_offset(),
                None => log.last_stable_offset(),
            };
            if offset < log.last_stable_offset() {
                time_ms = time_ms.min(time_at(log, offset)?.unwrap_or(now_ms));
            }
            positions.push((number, offset));
        }
        if let Some(AsOf { point: Point::TimeMs(ms), .. }) = &subscribe.as_of {
            time_ms = time_ms.min((*ms).max(0));
        }
        Ok(Self { positions, time_ms: time_ms.max(0) })
    }
}

fn check_numbers(as_of: Option<&AsOf>, count: usize) -> Result<(), SqlError> {
    let Some(AsOf { point: Point::Positions(positions), .. }) = as_of else { return Ok(()) };
    let is_there = |number: i32| usize::try_from(number).is_ok_and(|it| it < count);
    match positions.iter().find(|it| !is_there(it.0)) {
        Some((number, _)) => {
            let what = format!(
                "AS OF names partition {number}, but the topic has {count} \
                                partitions"
            );
            Err(SqlError::new(SqlState::INVALID_PARAMETER, what))
        }
        None => Ok(()),
    }
}

/// Returns the offset of a point in one partition.
pub(super) fn place_of(log: &Partition, number: i32, as_of: &AsOf) -> Result<i64, SqlError> {
    let (start, end) = (log.start_offset(), log.last_stable_offset());
    let offset = match &as_of.point {
        Point::Offset(offset) => *offset,
        Point::Positions(positions) => {
            positions.iter().find(|it| it.0 == number).map_or(0, |it| it.1)
        }
        Point::TimeMs(ms) => match log.find_time(*ms)? {
            // Deleted records may have been as new, so the first one is not known.
            Some(place) if place.offset <= start && start > 0 && place.timestamp > *ms => 0,
            Some(place) => place.offset.min(end),
            None => end,
        },
    };
    if offset < start && as_of.reach == Reach::AtLeast {
        return Ok(start);
    }
    if (start..=end).contains(&offset) {
        return Ok(offset);
    }
    let what = format!(
        "the offset of AS OF is out of range in partition {number}, which has offsets {start} to \
         {end}"
    );
    let hint = "AS OF AT LEAST starts at the first available offset.";
    Err(SqlError::new(SqlState::INVALID_PARAMETER, what).with_hint(hint))
}

/// Returns the timestamp of the first batch from an offset on.
fn time_at(log: &Partition, offset: i64) -> Result<Option<i64>, SqlError> {
    let mut buffer = Vec::new();
    let range = log.read(offset.max(log.start_offset()), 1, &mut buffer)?;
    let header = record_batch::BatchHeader::read(&buffer[range]);
    Ok(header.map(|it| it.base_timestamp.max(0)))
}
