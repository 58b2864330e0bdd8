//! Offsets given as words, times and ages.

use std::time::SystemTime;

use kafka_client::OffsetSpec as ClientSpec;

use crate::arguments::streams::OffsetSpec;

/// Converts to the specification of the broker's client. Ages are relative to now.
pub(super) fn at_present(spec: OffsetSpec) -> ClientSpec {
    match spec {
        OffsetSpec::Earliest => ClientSpec::Earliest,
        OffsetSpec::Latest => ClientSpec::Latest,
        OffsetSpec::Offset(offset) => ClientSpec::Offset(offset),
        OffsetSpec::Time(time) => ClientSpec::Time(time),
        OffsetSpec::Ago(duration) => {
            let time = SystemTime::now().checked_sub(duration);
            let since_1970 = time.and_then(|it| it.duration_since(SystemTime::UNIX_EPOCH).ok());
            let milliseconds = since_1970.unwrap_or_default().as_millis();
            ClientSpec::Time(i64::try_from(milliseconds).unwrap_or(i64::MAX))
        }
    }
}
